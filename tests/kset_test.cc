// Which k form a step: the bit map of docs/numerics.md, written out again here.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

extern "C" {
#include "kernels/kset.h"
}

namespace {

// "Within each block of 128, write k in bits (t1 t0 j1 j0 b h c) ... position p
// in bits (j1 j0 h c t1 t0 b)": both from the highest bit down.
constexpr char kBitsOfK[] = "TtJjbhc";
constexpr char kBitsOfP[] = "JjhcTtb";

uint32_t Moved(uint32_t value, const char* from, const char* to) {
  uint32_t moved = value / 128 * 128;
  for (int i = 0; i < 7; i++) {
    for (int o = 0; o < 7; o++) {
      if (from[i] == to[o]) moved |= (value >> (6 - i) & 1) << (6 - o);
    }
  }
  return moved;
}

constexpr uint32_t kAll = 65536;

TEST(KSet, IsTheBitMapOfTheContract) {
  for (uint32_t i = 0; i < kAll; i++) {
    ASSERT_EQ(moep_p_from_k(i), Moved(i, kBitsOfK, kBitsOfP)) << "k " << i;
    ASSERT_EQ(moep_k_from_p(i), Moved(i, kBitsOfP, kBitsOfK)) << "p " << i;
  }
}

TEST(KSet, MapsAreInverseAndKeepTheBlock) {
  for (uint32_t i = 0; i < kAll; i++) {
    ASSERT_EQ(moep_p_from_k(moep_k_from_p(i)), i);
    ASSERT_EQ(moep_k_from_p(moep_p_from_k(i)), i);
    ASSERT_EQ(moep_p_from_k(i) / 128, i / 128);
    ASSERT_EQ(moep_k_from_p(i) / 128, i / 128);
  }
}

// Word j of all four lanes makes two steps: 2j has h = 0, 2j + 1 has h = 1. Of
// lane t they take nibbles 2h, 2h + 1 and, four further, 2h + 4, 2h + 5.
TEST(KSet, StepTakesTheNibblePairsOfOneWord) {
  for (uint32_t block : {0u, 128u, 65408u}) {
    for (uint32_t step = 0; step < 8; step++) {
      std::set<uint32_t> expected, taken;
      const uint32_t word = step / 2, h = step % 2;
      for (uint32_t lane = 0; lane < 4; lane++) {
        for (uint32_t nibble : {2 * h, 2 * h + 1, 2 * h + 4, 2 * h + 5}) {
          expected.insert(block + 32 * lane + 8 * word + nibble);
        }
      }
      for (uint32_t i = 0; i < MOEP_STEP_K; i++) {
        taken.insert(moep_k_from_p(block + step * MOEP_STEP_K + i));
      }
      EXPECT_EQ(taken, expected) << "step " << step << " of block " << block;
    }
  }
}

// Nibbles i and i + 4 of a word stand side by side: halves of one register.
TEST(KSet, NibblesFourApartAreNeighbours) {
  for (uint32_t p = 0; p < kAll; p += 2) {
    ASSERT_EQ(moep_k_from_p(p) % 8 / 4, 0u);
    ASSERT_EQ(moep_k_from_p(p + 1), moep_k_from_p(p) + 4);
  }
}

TEST(KSet, FirstSteps) {
  const std::vector<uint32_t> first = {0, 4, 32, 36, 64, 68, 96, 100,
                                       1, 5, 33, 37, 65, 69, 97, 101};
  const std::vector<uint32_t> second = {2, 6, 34, 38, 66, 70, 98, 102,
                                        3, 7, 35, 39, 67, 71, 99, 103};
  for (uint32_t i = 0; i < 16; i++) {
    EXPECT_EQ(moep_k_from_p(i), first[i]);
    EXPECT_EQ(moep_k_from_p(16 + i), second[i]);
  }
}

TEST(KSet, ConstantsAndPaddedWidth) {
  EXPECT_EQ(MOEP_STEP_K, 16);
  EXPECT_EQ(MOEP_BLOCK_K, 128);
  EXPECT_EQ(MOEP_SEGMENT_K, 2048);
  EXPECT_EQ(MOEP_ROUTER_SEGMENT_K, 512);
  for (uint32_t k = 16; k <= kAll; k += 16) {
    const uint32_t padded = moep_padded_k(k);
    ASSERT_EQ(padded % 128, 0u);
    ASSERT_GE(padded, k);
    ASSERT_LT(padded, k + 128);
  }
}

}  // namespace
