// NVFP4 decoding against the formats' definitions: all 16 x 127 codes, exact in
// bf16, and the integer unpacking that kernels use.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/harness.h"

extern "C" {
#include "kernels/scalar.h"
#include "kernels/unpack.h"
}

namespace {

// E2M1: one mantissa bit, exponent bias 1.
constexpr double kE2m1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

// E4M3: three mantissa bits, exponent bias 7, no infinities. Code 127 is NaN.
double E4m3(uint32_t code) {
  const int exponent = static_cast<int>(code / 8), mantissa = code % 8;
  return exponent == 0 ? std::ldexp(mantissa, -9)
                       : std::ldexp(8 + mantissa, exponent - 10);
}

// bf16 by its definition, any finite code.
double Bf16(uint32_t bits) {
  const int exponent = bits >> 7 & 255, mantissa = bits & 127;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -133)
                               : std::ldexp(128 + mantissa, exponent - 134);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

void ExpectSame(double value, double expected) {
  EXPECT_EQ(value, expected);
  EXPECT_EQ(std::signbit(value), std::signbit(expected));
}

TEST(Nvfp4, TheTablesOfThisTest) {
  EXPECT_EQ(E4m3(1), 0x1p-9);
  EXPECT_EQ(E4m3(7), 7 * 0x1p-9);
  EXPECT_EQ(E4m3(8), 0x1p-6);
  EXPECT_EQ(E4m3(56), 1.0);
  EXPECT_EQ(E4m3(126), 448.0);
  EXPECT_EQ(Bf16(0x3F80), 1.0);
  EXPECT_EQ(Bf16(0x8001), -0x1p-133);
}

TEST(Nvfp4, EveryWeightCode) {
  for (uint32_t code = 0; code < 16; code++) {
    SCOPED_TRACE(code);
    ExpectSame(static_cast<double>(moep_e2m1_to_float(code)), kE2m1[code]);
  }
}

TEST(Nvfp4, EveryScaleCode) {
  for (uint32_t code = 0; code < 127; code++) {
    SCOPED_TRACE(code);
    ExpectSame(static_cast<double>(moep_e4m3_to_float(code)), E4m3(code));
    ExpectSame(static_cast<double>(moep_block_scale(code)),
               E4m3(code) * 0x1p-26);
  }
}

TEST(Nvfp4, EveryProductIsExactInBf16) {
  for (uint32_t weight = 0; weight < 16; weight++) {
    for (uint32_t scale = 0; scale < 127; scale++) {
      SCOPED_TRACE(testing::Message() << "codes " << weight << ", " << scale);
      const float product =
          moep_e2m1_to_float(weight) * moep_block_scale(scale);
      ExpectSame(Bf16(moep_bf16_from_float(product)),
                 kE2m1[weight] * E4m3(scale) * 0x1p-26);
    }
  }
}

TEST(Nvfp4, TheEpilogueGivesTheBiasBack) {
  EXPECT_EQ(MOEP_OPERAND_BIAS, 26);
  for (float scale : {0.0f, 1.0f, 0.00123f, 0x1p-149f, 0x1.FFFFFEp101f}) {
    EXPECT_EQ(static_cast<double>(moep_epilogue_scale(scale)),
              static_cast<double>(scale) * 0x1p26);
  }
  EXPECT_TRUE(std::isinf(moep_epilogue_scale(0x1p102f)));
}

// pair[i]: nibble i in the low half, nibble i + 4 in the high one.
void ExpectUnpacked(uint32_t word) {
  const moep_e2m1_pairs pairs = moep_unpack_e2m1(word);
  for (int i = 0; i < 4; i++) {
    const double low = kE2m1[word >> 4 * i & 15] * 0x1p-126;
    const double high = kE2m1[word >> (4 * i + 16) & 15] * 0x1p-126;
    const double low_out = Bf16(pairs.pair[i] & 0xFFFF);
    const double high_out = Bf16(pairs.pair[i] >> 16);
    ASSERT_TRUE(low_out == low && std::signbit(low_out) == std::signbit(low) &&
                high_out == high &&
                std::signbit(high_out) == std::signbit(high))
        << "pair " << i << " of 0x" << std::hex << word;
  }
}

TEST(Unpack, EveryPairOfCodesAtEveryPlace) {
  for (uint32_t a = 0; a < 8; a++) {
    for (uint32_t b = 0; b < 8; b++) {
      for (uint32_t codes = 0; codes < 256; codes++) {
        for (uint32_t filler : {0u, 0xFFFFFFFFu, 0x5AC3E781u}) {
          uint32_t word = filler & ~(15u << 4 * a) & ~(15u << 4 * b);
          word |= (codes & 15) << 4 * a;
          if (a != b) word |= (codes >> 4) << 4 * b;
          ExpectUnpacked(word);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Unpack, RandomWords) {
  harness_random random = {3};
  for (int i = 0; i < 200000 && !HasFatalFailure(); i++) {
    ExpectUnpacked(harness_next(&random));
  }
}

TEST(Unpack, PairsOfScaleCodes) {
  for (uint32_t low = 0; low < 127; low++) {
    for (uint32_t high = 0; high < 127; high++) {
      const uint32_t pair = moep_unpack_e4m3(low | high << 16);
      ASSERT_EQ(Bf16(pair & 0xFFFF), E4m3(low) * 0x1p-120);
      ASSERT_EQ(Bf16(pair >> 16), E4m3(high) * 0x1p-120);
    }
  }
}

// The unpacked halves multiply to the operand that scalar.h makes.
TEST(Unpack, ProductsAreTheOperands) {
  for (uint32_t weight = 0; weight < 16; weight++) {
    const double unpacked = Bf16(moep_unpack_e2m1(weight).pair[0] & 0xFFFF);
    for (uint32_t scale = 0; scale < 127; scale++) {
      const double unpacked_scale = Bf16(moep_unpack_e4m3(scale) & 0xFFFF);
      const float operand =
          moep_e2m1_to_float(weight) * moep_block_scale(scale);
      ASSERT_EQ(unpacked * unpacked_scale * 0x1p220,
                Bf16(moep_bf16_from_float(operand)))
          << "codes " << weight << ", " << scale;
    }
  }
}

}  // namespace
