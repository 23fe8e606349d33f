// The integer model of one tensor-core step: what an H200 recorded, bit for
// bit, and each rule of docs/numerics.md by a case made by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "tests/harness.h"

extern "C" {
#include "kernels/host/step.h"
#include "kernels/scalar.h"
}

namespace {

struct Step {
  uint16_t a[16], b[16];
  float c, d;
};
static_assert(sizeof(Step) == 72);

struct Chain {
  uint16_t a[64][2048], b[8][2048];
  float d[64][8];
};

template <typename Record>
std::vector<Record> Records(const char* name) {
  std::ifstream file(std::string("tests/cases/") + name, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(bytes.size() % sizeof(Record), 0u) << name;
  std::vector<Record> records(bytes.size() / sizeof(Record));
  if (records.empty()) return records;
  std::memcpy(records.data(), bytes.data(), records.size() * sizeof(Record));
  return records;
}

float Sm90(const uint16_t* a, const uint16_t* b, float c) {
  return moep_step(&moep_step_sm90, a, b, c);
}

// ---- by hand ------------------------------------------------------------------

constexpr uint32_t kNan = 0x7FFFFFFF, kInf = 0x7F800000, kMinusInf = 0xFF800000;

// bf16 bits of a number that bf16 holds exactly.
uint16_t Bf16(double value) {
  const float f = static_cast<float>(value);
  const uint32_t bits = moep_float_bits(f);
  EXPECT_TRUE(std::isnan(value) ||
              (static_cast<double>(f) == value && (bits & 0xFFFF) == 0))
      << value << " is no bf16";
  return static_cast<uint16_t>(bits >> 16);
}

// A step by hand: products at slots 0, 1, ... and zeros (or a filler) after.
struct Sum {
  uint16_t a[16] = {}, b[16] = {};
  int used = 0;

  Sum& Bits(uint16_t x, uint16_t y) {
    a[used] = x;
    b[used++] = y;
    return *this;
  }
  Sum& Add(double x, double y) { return Bits(Bf16(x), Bf16(y)); }
  Sum& Times(int count, double x, double y) {
    for (int i = 0; i < count; i++) Add(x, y);
    return *this;
  }
  uint32_t OnBits(uint32_t c) const {
    return moep_float_bits(Sm90(a, b, moep_float_from_bits(c)));
  }
  uint32_t On(double c) const {
    EXPECT_EQ(static_cast<double>(static_cast<float>(c)), c);
    return OnBits(moep_float_bits(static_cast<float>(c)));
  }
};

uint32_t Of(double value) {
  const float f = static_cast<float>(value);
  EXPECT_EQ(static_cast<double>(f), value) << value << " is no float32";
  return moep_float_bits(f);
}

// ---- recorded -----------------------------------------------------------------

// The bits of the `steps` records of a file.
void ExpectSteps(const char* name, size_t steps) {
  const std::vector<Step> records = Records<Step>(name);
  ASSERT_EQ(records.size(), steps) << name;
  for (size_t i = 0; i < records.size(); i++) {
    ASSERT_EQ(moep_float_bits(Sm90(records[i].a, records[i].b, records[i].c)),
              moep_float_bits(records[i].d))
        << name << ", record " << i;
  }
}

TEST(StepRecords, SingleStepsAreThoseOfAnH200) {
  ExpectSteps("mma_step_sm90.bin", 5632);
}

// Results around and below the least float32: what is below 2^-149 becomes +0,
// and terms are cut as if the largest exponent were -133 at least.
TEST(StepRecords, TinyResultsAreThoseOfAnH200) {
  ExpectSteps("mma_tiny_sm90.bin", 12 + 2048);
}

TEST(StepRecords, OrderInsideTheSixteenDoesNotMatter) {
  const auto steps = Records<Step>("mma_step_sm90.bin");
  harness_random random = {1};
  for (size_t i = 0; i < steps.size(); i++) {
    Step mixed = steps[i];
    for (uint32_t n = 16; n > 1; n--) {
      const uint32_t at = harness_below(&random, n);
      std::swap(mixed.a[n - 1], mixed.a[at]);
      std::swap(mixed.b[n - 1], mixed.b[at]);
    }
    ASSERT_EQ(moep_float_bits(Sm90(mixed.a, mixed.b, mixed.c)),
              moep_float_bits(steps[i].d))
        << "step " << i;
    ASSERT_EQ(moep_float_bits(Sm90(mixed.b, mixed.a, mixed.c)),
              moep_float_bits(steps[i].d))
        << "step " << i << ", operands exchanged";
  }
}

TEST(StepRecords, ChainsAreThoseOfAnH200) {
  const auto chains = Records<Chain>("mma_chain_sm90.bin");
  ASSERT_EQ(chains.size(), 4u);
  for (size_t i = 0; i < chains.size(); i++) {
    for (int m = 0; m < 64; m++) {
      for (int n = 0; n < 8; n++) {
        float acc = 0.0f;
        for (int k = 0; k < 2048; k += 16) {
          acc = Sm90(chains[i].a[m] + k, chains[i].b[n] + k, acc);
        }
        ASSERT_EQ(moep_float_bits(acc), moep_float_bits(chains[i].d[m][n]))
            << "chain " << i << ", output " << m << ", " << n;
      }
    }
  }
}

// So a test on accumulators sees a wrong grouping: two steps of eight, or steps
// over other sixteens, nearly always give other bits.
TEST(StepRecords, OtherGroupingsGiveOtherBits) {
  const auto chains = Records<Chain>("mma_chain_sm90.bin");
  int halves = 0, shifted = 0, reversed = 0;
  for (const Chain& chain : chains) {
    for (int m = 0; m < 64; m++) {
      float by_eight = 0.0f, by_shift = 0.0f, backwards = 0.0f;
      for (int k = 0; k < 2048; k += 8) {
        uint16_t a[16] = {}, b[16] = {};
        std::copy_n(chain.a[m] + k, 8, a);
        std::copy_n(chain.b[0] + k, 8, b);
        by_eight = Sm90(a, b, by_eight);
      }
      for (int k = 0; k < 2048; k += 16) {
        uint16_t a[16], b[16];
        for (int i = 0; i < 16; i++) {
          a[i] = chain.a[m][(k + 8 + i) % 2048];
          b[i] = chain.b[0][(k + 8 + i) % 2048];
        }
        by_shift = Sm90(a, b, by_shift);
        backwards =
            Sm90(chain.a[m] + 2032 - k, chain.b[0] + 2032 - k, backwards);
      }
      halves += moep_float_bits(by_eight) != moep_float_bits(chain.d[m][0]);
      shifted += moep_float_bits(by_shift) != moep_float_bits(chain.d[m][0]);
      reversed += moep_float_bits(backwards) != moep_float_bits(chain.d[m][0]);
    }
  }
  EXPECT_GE(halves, 250);  // of 256
  EXPECT_GE(shifted, 200);
  EXPECT_GE(reversed, 200);
}

// ---- width --------------------------------------------------------------------

TEST(StepWidth, TermsKeep25FractionBits) {
  EXPECT_EQ(Sum().Times(4, 0x1p-25, 1).On(1), Of(1 + 0x1p-23));
  EXPECT_EQ(Sum().Times(16, 0x1p-26, 1).On(1), Of(1));
  EXPECT_EQ(Sum().Times(4, 0x1p-25, -1).On(1), Of(1 - 0x1p-23));
  // The accumulator is one of the terms: cut at 2^-25 of the largest.
  EXPECT_EQ(Sum().Add(1, 1).Add(-1, 1).On(0x1p-25), Of(0x1p-25));
  EXPECT_EQ(Sum().Add(1, 1).Add(-1, 1).On(0x1p-26), Of(0));
  EXPECT_EQ(Sum().Add(1, 1).Add(-1, 1).On(0x1.8p-25), Of(0x1p-25));
}

TEST(StepWidth, TermsAndSumsAreTruncatedTowardZero) {
  EXPECT_EQ(Sum().Add(1, 1).Add(-1, 1).On(-0x1.8p-25), Of(-0x1p-25));
  EXPECT_EQ(Sum().Times(3, 0x1p-25, 1).On(1), Of(1));
  EXPECT_EQ(Sum().Times(3, 0x1p-25, -1).On(-1), Of(-1));
  EXPECT_EQ(Sum().Times(7, 0x1p-25, 1).On(1), Of(1 + 0x1p-23));
  EXPECT_EQ(Sum().Times(1, 0x1p-25, -1).On(1), Of(1 - 0x1p-24));
}

// 1.5 x 1.5 = 2.25 counts with exponent 0: 2^-25 still survives beside it.
TEST(StepWidth, ProductsAreNotNormalised) {
  EXPECT_EQ(Sum().Add(1.5, 1.5).Times(8, 0x1p-25, 1).On(0), Of(2.25 + 0x1p-22));
  EXPECT_EQ(Sum().Add(2.25, 1).Times(8, 0x1p-25, 1).On(0), Of(2.25));
}

TEST(StepWidth, ZeroTermsDoNotEnterTheLargestExponent) {
  for (const double huge : {0x1p127, -0x1p127}) {
    EXPECT_EQ(Sum().Add(huge, 0).Add(0, huge).On(0x1p-100), Of(0x1p-100));
    EXPECT_EQ(Sum().Add(huge, -0.0).Add(0x1p-60, 0x1p-60).On(0), Of(0x1p-120));
  }
  EXPECT_EQ(Sum().Add(0x1p-60, 0x1p-60).On(-0.0), Of(0x1p-120));
}

// ---- zeros --------------------------------------------------------------------

TEST(StepZero, ZeroSumsArePlusZero) {
  EXPECT_EQ(Sum().On(0), 0u);
  EXPECT_EQ(Sum().OnBits(0x80000000), 0u);
  EXPECT_EQ(Sum().Times(16, -0.0, 1).OnBits(0x80000000), 0u);
  EXPECT_EQ(Sum().Times(16, -1, 0.0).OnBits(0x80000000), 0u);
  EXPECT_EQ(Sum().Add(3, 5).Add(-5, 3).On(0), 0u);
  EXPECT_EQ(Sum().Add(-3, 5).On(15), 0u);
}

TEST(StepZero, AllZeroProductsLeaveTheAccumulator) {
  harness_random random = {2};
  for (int i = 0; i < 100000; i++) {
    uint32_t c = harness_next(&random);
    if (i % 4 == 0) c &= 0x807FFFFF;  // subnormal
    if ((c & kInf) == kInf) continue;
    Sum sum;
    for (int j = 0; j < 16; j++) {
      const auto x = static_cast<uint16_t>(harness_next(&random));
      const bool finite = (x & 0x7F80) != 0x7F80;
      const auto zero = static_cast<uint16_t>(harness_next(&random) & 0x8000);
      sum.Bits(finite ? x : 0, zero);
    }
    ASSERT_EQ(sum.OnBits(c), c == 0x80000000 ? 0 : c) << std::hex << c;
  }
}

// ---- subnormal ----------------------------------------------------------------

TEST(StepSubnormal, OperandsCountWithExponentOneAndNoHiddenBit) {
  const uint16_t least = 0x0001;  // 2^-133
  EXPECT_EQ(Sum().Bits(least, Bf16(1)).On(0), Of(0x1p-133));
  EXPECT_EQ(Sum().Bits(least, Bf16(0x1p127)).On(0), Of(0x1p-6));
  EXPECT_EQ(Sum().Bits(0x807F, Bf16(0x1p127)).On(0), Of(-127 * 0x1p-6));
  // Its exponent is -126 + 127, not that of 2^-6: 2^-24 is the last bit.
  EXPECT_EQ(Sum().Bits(least, Bf16(0x1p127)).Times(8, 0x1p-15, 0x1p-11).On(0),
            Of(0x1p-6));
  EXPECT_EQ(Sum().Add(0x1p-6, 1).Times(8, 0x1p-15, 0x1p-11).On(0),
            Of(0x1p-6 + 0x1p-23));
}

TEST(StepSubnormal, AccumulatorsAndResultsAreKept) {
  EXPECT_EQ(Sum().On(0x1p-149), 1u);
  EXPECT_EQ(Sum().Add(0x1p-75, 0x1p-74).On(0), 1u);
  EXPECT_EQ(Sum().Add(0x1p-75, 0x1p-74).On(0x1p-149), 2u);
  EXPECT_EQ(Sum().Add(-0x1p-75, 0x1p-74).On(0x1p-126), Of(0x1p-126 - 0x1p-149));
  EXPECT_EQ(Sum().Add(-0x1p-75, 0x1p-74).On(0), 0x80000001u);
}

TEST(StepSubnormal, ResultsAreTruncatedNotRoundedNorFlushed) {
  EXPECT_EQ(Sum().Add(0x1.8p-75, 0x1p-74).On(0), 1u);
  EXPECT_EQ(Sum().Add(0x1.FCp-75, 0x1p-74).On(0), 1u);
  EXPECT_EQ(Sum().Add(0x1.FCp-75, -0x1p-74).On(0), 0x80000001u);
  EXPECT_EQ(Sum().Add(0x1.FCp-75, 0x1p-75).On(0), 0u);
  EXPECT_EQ(Sum().Bits(1, 1).On(0), 0u);
}

// ---- overflow, infinity, NaN ---------------------------------------------------

TEST(StepOverflow, TwoToThe128IsAnInfinityOfItsSign) {
  EXPECT_EQ(Sum().Add(0x1p64, 0x1p64).On(0), kInf);
  EXPECT_EQ(Sum().Add(0x1p64, -0x1p64).On(0), kMinusInf);
  EXPECT_EQ(Sum().Add(0x1p127, 0x1p127).On(0), kInf);
  EXPECT_EQ(Sum().Add(0x1p127, 1).On(0x1p127), kInf);
  // Truncation: just below stays the largest number.
  EXPECT_EQ(Sum().Add(0x1p127, 1).Add(0x1.FEp126, 1).On(0x1.FEp118),
            Of(0x1p127 + 0x1.FEp126 + 0x1.FEp118));
  EXPECT_EQ(Sum().Add(0x1p103, 1.5).OnBits(0x7F7FFFFF), 0x7F7FFFFFu);
  EXPECT_EQ(Sum().Add(0x1p103, 2).OnBits(0x7F7FFFFF), kInf);
}

TEST(StepOverflow, OnlyTheSumCounts) {
  EXPECT_EQ(Sum().Add(0x1p127, 0x1p127).Add(0x1p127, -0x1p127).On(0), 0u);
  EXPECT_EQ(Sum().Add(0x1p100, 0x1p28).Add(-0x1p127, 1).On(0), Of(0x1p127));
}

TEST(StepInfinity, AnInfiniteTermGivesThatInfinity) {
  const uint16_t inf = 0x7F80, minus = 0xFF80;
  EXPECT_EQ(Sum().Bits(inf, Bf16(1)).On(-0x1p127), kInf);
  EXPECT_EQ(Sum().Bits(inf, Bf16(-0x1p-100)).On(1), kMinusInf);
  EXPECT_EQ(Sum().Bits(minus, minus).On(1), kInf);
  EXPECT_EQ(Sum().Bits(minus, inf).On(1), kMinusInf);
  EXPECT_EQ(Sum().Bits(inf, 0x0001).On(1), kInf);  // times a subnormal
  EXPECT_EQ(Sum().Add(1, 1).OnBits(kInf), kInf);
  EXPECT_EQ(Sum().Add(-0x1p127, 0x1p127).OnBits(kInf), kInf);
  EXPECT_EQ(Sum().OnBits(kMinusInf), kMinusInf);
  EXPECT_EQ(Sum().Times(16, 0x1p127, 0x1p127).OnBits(kMinusInf), kMinusInf);
}

TEST(StepNan, InfinitiesOfBothSignsAndInfinityTimesZero) {
  const uint16_t inf = 0x7F80, minus = 0xFF80, one = Bf16(1);
  EXPECT_EQ(Sum().Bits(inf, one).Bits(minus, one).On(0), kNan);
  EXPECT_EQ(Sum().Bits(inf, one).Bits(inf, Bf16(-1)).On(0), kNan);
  EXPECT_EQ(Sum().Bits(inf, one).OnBits(kMinusInf), kNan);
  EXPECT_EQ(Sum().Bits(minus, one).OnBits(kInf), kNan);
  for (uint16_t zero : {uint16_t{0}, uint16_t{0x8000}}) {
    EXPECT_EQ(Sum().Bits(inf, zero).On(0), kNan);
    EXPECT_EQ(Sum().Bits(zero, minus).On(5), kNan);
    EXPECT_EQ(Sum().Bits(inf, zero).OnBits(kInf), kNan);
  }
}

TEST(StepNan, EveryNanAnywhereIs7FFFFFFF) {
  for (uint32_t low = 1; low < 128; low++) {
    for (uint32_t sign : {0x0000u, 0x8000u}) {
      const auto nan = static_cast<uint16_t>(sign | 0x7F80 | low);
      for (int slot = 0; slot < 16; slot++) {
        Sum sum;
        sum.Times(slot, 1, 2).Bits(nan, Bf16(0)).Times(15 - slot, 1, 1);
        ASSERT_EQ(sum.On(1), kNan) << std::hex << nan << " at " << slot;
        std::swap(sum.a, sum.b);
        ASSERT_EQ(sum.OnBits(kInf), kNan) << std::hex << nan;
      }
      ASSERT_EQ(Sum().Add(1, 1).OnBits(static_cast<uint32_t>(nan) << 16), kNan);
    }
  }
  EXPECT_EQ(Sum().OnBits(0x7F800001), kNan);
  EXPECT_EQ(Sum().OnBits(0xFFFFFFFF), kNan);
}

}  // namespace
