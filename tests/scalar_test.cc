// bf16 rounding, exp, silu and the clamp against definitions of their own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" {
#include "kernels/scalar.h"
}

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint32_t kInfBits = 0x7F800000;

// ---- bf16 ---------------------------------------------------------------------

// A bf16 magnitude's value; 0x7F80 stands for 2^128 here.
double Bf16Magnitude(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 7), mantissa = bits & 127;
  return exponent == 0 ? std::ldexp(mantissa, -133)
                       : std::ldexp(128 + mantissa, exponent - 134);
}

// Of the two neighbours the nearer, of equally near ones the even.
uint16_t Bf16ByDistance(uint32_t bits) {
  if ((bits & 0x7FFFFFFF) > kInfBits) return 0x7FFF;
  const uint32_t sign = bits >> 31 << 15, low = bits >> 16 & 0x7FFF;
  if (low == 0x7F80) return static_cast<uint16_t>(sign | low);
  const double value =
      std::fabs(static_cast<double>(moep_float_from_bits(bits)));
  const double down = value - Bf16Magnitude(low);
  const double up = Bf16Magnitude(low + 1) - value;
  const bool take_low = down < up || (down == up && low % 2 == 0);
  return static_cast<uint16_t>(sign | (take_low ? low : low + 1));
}

TEST(Bf16, RoundsToTheNearestEven) {
  for (uint32_t upper = 0; upper < 65536; upper++) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x3FFFu, 0x4000u, 0x7FFEu, 0x7FFFu,
                           0x8000u, 0x8001u, 0xC000u, 0xFFFEu, 0xFFFFu}) {
      const uint32_t bits = upper << 16 | lower;
      ASSERT_EQ(moep_bf16_from_float(moep_float_from_bits(bits)),
                Bf16ByDistance(bits))
          << std::hex << bits;
    }
  }
}

TEST(Bf16, EveryCodeIsItsOwnRounding) {
  for (uint32_t code = 0; code < 65536; code++) {
    const float value = moep_bf16_to_float(static_cast<uint16_t>(code));
    ASSERT_EQ(moep_float_bits(value), code << 16);
    const bool nan = (code & 0x7FFF) > 0x7F80;
    ASSERT_EQ(moep_bf16_from_float(value), nan ? 0x7FFF : code);
    ASSERT_EQ(moep_float_bits(moep_bf16_round(value)),
              nan ? 0x7FFF0000 : code << 16);
  }
}

TEST(Float32, EveryNanIsStoredAsOne) {
  for (uint32_t low : {1u, 0x400000u, 0x7FFFFFu, 0x123456u}) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      EXPECT_EQ(moep_float_bits(moep_f32_stored(
                    moep_float_from_bits(sign | kInfBits | low))),
                0x7FFFFFFFu);
    }
  }
  for (uint32_t bits : {0u, 0x80000000u, 1u, kInfBits, 0xFF800000u, 0x3F801u}) {
    EXPECT_EQ(moep_float_bits(moep_f32_stored(moep_float_from_bits(bits))),
              bits);
  }
}

// ---- exp ----------------------------------------------------------------------

// The distance of two float32 at `exact`, down to the least subnormal.
double Ulp(double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

// |exp(x) - e^x| in units in the last place.
double ExpError(float x) {
  const double exact = std::exp(static_cast<double>(x));
  return std::fabs(static_cast<double>(moep_exp(x)) - exact) / Ulp(exact);
}

TEST(Exp, WithinOneAndAHalfUlp) {
  double worst = 0.0;
  float worst_x = 0.0f;
  // Positive and negative numbers, every 211th of those below 104.
  for (uint32_t sign : {0u, 0x80000000u}) {
    const float end = sign == 0 ? 88.7228f : 103.9f;
    for (uint32_t bits = 0; bits < moep_float_bits(end); bits += 211) {
      const float x = moep_float_from_bits(sign | bits);
      const double error = ExpError(x);
      if (error > worst) {
        worst = error;
        worst_x = x;
      }
    }
  }
  EXPECT_LE(worst, 1.5) << "at " << worst_x;
  RecordProperty("worst_ulp_times_1000", static_cast<int>(worst * 1000));
}

TEST(Exp, WithinOneAndAHalfUlpNearEveryChangeOfThePower) {
  for (int n = -150; n <= 127; n++) {
    const auto middle = static_cast<float>((n + 0.5) * 0.693147180559945309);
    const uint32_t bits = moep_float_bits(middle);
    for (uint32_t i = 0; i < 400; i++) {
      const float x = moep_float_from_bits(bits - 200 + i);
      if (x > 88.7228f) continue;
      ASSERT_LE(ExpError(x), 1.5) << "exp(" << x << ")";
    }
  }
}

TEST(Exp, SpecialValues) {
  EXPECT_EQ(moep_float_bits(moep_exp(0.0f)), 0x3F800000u);
  EXPECT_EQ(moep_float_bits(moep_exp(-0.0f)), 0x3F800000u);
  EXPECT_EQ(moep_float_bits(moep_exp(0x1p-149f)), 0x3F800000u);
  EXPECT_EQ(moep_exp(kInf), kInf);
  EXPECT_EQ(moep_float_bits(moep_exp(-kInf)), 0u);
  for (uint32_t nan : {0x7F800001u, 0xFFC00000u, 0x7FFFFFFFu}) {
    EXPECT_EQ(moep_float_bits(moep_exp(moep_float_from_bits(nan))),
              0x7FFFFFFFu);
  }
}

TEST(Exp, OverflowsAndUnderflowsWhereTheExactOneDoes) {
  const float largest = 0x1.62E42Ep6f;  // ln of the largest number, downwards
  EXPECT_LT(moep_exp(largest), kInf);
  for (float x = std::nextafter(largest, kInf); x < 90.0f; x += 0.001f) {
    ASSERT_EQ(moep_exp(x), kInf) << x;
  }
  for (float x :
       {89.0f, std::nextafter(89.0f, kInf), 100.0f, 0x1.FFFFFEp127f}) {
    EXPECT_EQ(moep_exp(x), kInf);
  }
  // e^-103.972 is 2^-150, half the least subnormal.
  for (float x = -103.98f; x > -106.0f; x -= 0.001f) {
    ASSERT_EQ(moep_float_bits(moep_exp(x)), 0u) << x;
  }
  EXPECT_EQ(moep_float_bits(moep_exp(-0x1.FFFFFEp127f)), 0u);
  EXPECT_EQ(moep_float_bits(moep_exp(-103.9f)), 1u);
}

TEST(Exp, SubnormalResultsAreThere) {
  for (float x = -87.4f; x > -103.9f; x -= 0.0007f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_LT(exact, 0x1p-126);
    ASSERT_NEAR(static_cast<double>(moep_exp(x)), exact, 1.5 * 0x1p-149) << x;
  }
}

// ---- sigmoid and silu ----------------------------------------------------------

TEST(Sigmoid, WithinThreeUlpOfDouble) {
  for (float x = -87.0f; x < 110.0f; x += 0.0013f) {
    const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    ASSERT_NEAR(static_cast<double>(moep_sigmoid(x)), exact, 3 * Ulp(exact))
        << x;
  }
  EXPECT_EQ(moep_sigmoid(kInf), 1.0f);
  EXPECT_EQ(moep_float_bits(moep_sigmoid(-kInf)), 0u);
  EXPECT_EQ(moep_sigmoid(0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(moep_sigmoid(std::nanf(""))));
}

// Where e^-g overflows (g < -88.7) the contract's quotient is -0; the exact one
// is above -2^-121.
TEST(Silu, EveryBf16GateWithinThreeUlpOfDouble) {
  int flushed = 0;
  for (uint32_t code = 0; code < 65536; code++) {
    const float gate = moep_bf16_to_float(static_cast<uint16_t>(code));
    const float silu = moep_silu(gate);
    if (std::isnan(gate) || gate == -kInf) {
      ASSERT_TRUE(std::isnan(silu)) << gate;
      continue;
    }
    if (gate == kInf) {
      ASSERT_EQ(silu, kInf);
      continue;
    }
    const double exact = gate / (1.0 + std::exp(-static_cast<double>(gate)));
    if (gate < -88.7f) {
      ASSERT_EQ(moep_float_bits(silu), 0x80000000u) << gate;
      ASSERT_GT(exact, -0x1p-120);
      flushed++;
    } else {
      ASSERT_NEAR(static_cast<double>(silu), exact, 3 * Ulp(exact)) << gate;
      ASSERT_EQ(std::signbit(silu), std::signbit(gate)) << gate;
    }
  }
  EXPECT_GT(flushed, 1000);
}

// ---- swiglu -------------------------------------------------------------------

float Swiglu(float gate, float up, float limit) {
  return moep_swiglu(gate, up, limit);
}

TEST(Swiglu, GateIsClampedFromAboveOnly) {
  for (float limit : {0.5f, 7.0f, 10.0f}) {
    for (float gate : {std::nextafter(limit, kInf), 2 * limit, 1e30f, kInf}) {
      EXPECT_EQ(Swiglu(gate, 0.25f, limit), moep_silu(limit) * 0.25f);
    }
    for (float gate : {limit, std::nextafter(limit, 0.0f), 0.1f, -limit,
                       -1.5f * limit, -3 * limit, -20.0f}) {
      EXPECT_EQ(Swiglu(gate, 0.25f, limit), moep_silu(gate) * 0.25f) << gate;
    }
  }
}

TEST(Swiglu, UpIsClampedOnBothSides) {
  for (float limit : {0.5f, 7.0f, 10.0f}) {
    const float silu = moep_silu(0.25f);
    for (float up : {std::nextafter(limit, kInf), 2 * limit, 1e30f, kInf}) {
      EXPECT_EQ(Swiglu(0.25f, up, limit), silu * limit);
      EXPECT_EQ(Swiglu(0.25f, -up, limit), silu * -limit);
    }
    for (float up : {limit, std::nextafter(limit, 0.0f), 0.1f, 0.0f}) {
      EXPECT_EQ(Swiglu(0.25f, up, limit), silu * up);
      EXPECT_EQ(Swiglu(0.25f, -up, limit), silu * -up);
    }
  }
}

TEST(Swiglu, NanPasses) {
  const float nan = std::nanf("");
  for (float limit : {0.5f, 10.0f, kInf}) {
    EXPECT_TRUE(std::isnan(Swiglu(nan, 1.0f, limit)));
    EXPECT_TRUE(std::isnan(Swiglu(1.0f, nan, limit)));
    EXPECT_TRUE(std::isnan(Swiglu(nan, nan, limit)));
  }
}

TEST(Swiglu, AnInfiniteLimitIsNone) {
  for (float gate : {-50.0f, -1.0f, 0.0f, 3.0f, 1e4f, 1e30f}) {
    for (float up : {-1e30f, -100.0f, -0.5f, 0.0f, 2.0f, 1e6f}) {
      EXPECT_EQ(moep_float_bits(Swiglu(gate, up, kInf)),
                moep_float_bits(moep_silu(gate) * up));
    }
  }
  EXPECT_EQ(Swiglu(kInf, 1.0f, kInf), kInf);
  EXPECT_EQ(Swiglu(1.0f, -kInf, kInf), -kInf);
}

}  // namespace
