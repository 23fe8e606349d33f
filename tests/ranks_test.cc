// Expert and tensor parallel on the host device: the sum of the ranks' float32
// outputs is the whole site's y within rounding, whoever holds what.

#include "tests/ranks.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;
using moeplan_test::SumDifference;

constexpr uint32_t kRankCounts[] = {1, 2, 4, 8};

// Each rank's answer to the same run.
std::vector<Result> RunRanks(const Site& whole, const harness_run& run,
                             uint32_t ranks) {
  std::vector<Result> results;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    Site site(whole, rank, ranks);
    results.push_back(site.Run(run));
    EXPECT_EQ(results.back()->status, moeplan_status_success) << site.log();
    EXPECT_TRUE(results.back()->guards_intact);
  }
  return results;
}

harness_run RowsOf(uint32_t rows, const moeplan_options* options) {
  harness_run run = harness_rows(1, rows);
  run.options = options;
  return run;
}

// The sum, for each number of ranks and each of these recipes.
void ExpectSums(Site& whole, uint32_t rows,
                std::initializer_list<moeplan_recipe> recipes) {
  for (moeplan_recipe recipe : recipes) {
    const moeplan_options options = Options().Recipe(recipe).Float32();
    const harness_run run = RowsOf(rows, &options);
    const Result full = whole.Run(run);
    ASSERT_EQ(full->status, moeplan_status_success) << whole.log();
    for (uint32_t ranks : kRankCounts) {
      const std::vector<Result> parts = RunRanks(whole, run, ranks);
      ASSERT_EQ(SumDifference(*whole.get(), run, *full, parts), "")
          << ranks << " ranks, " << rows << " rows, recipe " << recipe;
    }
  }
}

void ExpectRoutedSums(Site& whole) {
  ExpectSums(whole, 1, {moeplan_recipe_decode, moeplan_recipe_prefill});
  if (testing::Test::HasFatalFailure()) return;
  ExpectSums(
      whole, 8,
      {moeplan_recipe_verify, moeplan_recipe_per_row, moeplan_recipe_prefill});
  if (testing::Test::HasFatalFailure()) return;
  ExpectSums(whole, 20, {moeplan_recipe_row_groups, moeplan_recipe_prefill});
}

/* ---- the sum ---- */

TEST(Ranks, SumIsTheWholeSite) {
  Site whole(harness_of(harness_config(96, 48, 24, 8, 128), 31, 24));
  ExpectRoutedSums(whole);
}

TEST(Ranks, SumIsTheWholeSiteWithoutASharedExpert) {
  Site whole(harness_of(harness_config(256, 208, 30, 8, 0), 32, 24));
  ExpectRoutedSums(whole);
}

// 6 experts on 8 ranks, 3 of 5 shards: ranks without an expert, without a shard,
// without either.
TEST(Ranks, RanksMayBeEmpty) {
  Site whole(harness_of(harness_config(112, 64, 6, 4, 48), 33, 24));
  Site none(whole, 0, 8);
  EXPECT_EQ(none.get()->config.local_experts, 0u);
  EXPECT_EQ(none.get()->config.shared_local_intermediate, 0u);
  ExpectRoutedSums(whole);
}

// An empty rank's y is +0, and its routing is the whole site's.
TEST(Ranks, AnEmptyRankGivesZeros) {
  Site whole(harness_of(harness_config(112, 64, 6, 4, 48), 34, 24));
  Site none(whole, 0, 8);
  for (uint32_t rows : {1u, 8u, 20u}) {
    const moeplan_options options = Options().Float32();
    const harness_run run = RowsOf(rows, &options);
    const Result full = whole.Run(run), result = none.Run(run);
    const std::vector<uint8_t> zeros(size_t{rows} * 112 * 4, 0);
    EXPECT_EQ(std::memcmp(result->y, zeros.data(), zeros.size()), 0);
    EXPECT_EQ(std::memcmp(result->ids, full->ids, rows * 4 * 4), 0);
    EXPECT_EQ(std::memcmp(result->weights, full->weights, rows * 4 * 4), 0);
  }
}

TEST(Ranks, SumIsTheDenseSite) {
  for (uint32_t width : {128u, 2320u, 4096u}) {
    Site whole(harness_of(harness_dense_config(80, width), 35, 24));
    for (uint32_t rows : {1u, 8u, 20u}) {
      ExpectSums(whole, rows, {moeplan_recipe_dense});
      if (HasFatalFailure()) return;
    }
  }
}

/* ---- what the sum rests on ---- */

// Bit for bit: routing, the accumulators of the slots that are here, and the
// gate and up of the columns that are here.
TEST(Ranks, ARankComputesWhatTheWholeSiteComputesThere) {
  constexpr uint32_t kRanks = 4, kRows = 8, kTopk = 8, kHidden = 96;
  Site whole(harness_of(harness_config(kHidden, 48, 24, kTopk, 128), 36, 24));
  const harness_run run = harness_rows(0, kRows);
  const Result full = whole.Run(run);
  uint32_t slots = 0;
  for (uint32_t rank = 0; rank < kRanks; rank++) {
    Site site(whole, rank, kRanks);
    const Result part = site.Run(run);
    ASSERT_EQ(std::memcmp(part->ids, full->ids, kRows * kTopk * 4), 0);
    ASSERT_EQ(std::memcmp(part->weights, full->weights, kRows * kTopk * 4), 0);
    for (uint32_t slot = 0; slot < kRows * kTopk; slot++) {
      if (static_cast<uint32_t>(full->ids[slot]) * kRanks / 24 != rank)
        continue;
      const size_t up = 2 * 48, down = kHidden;
      ASSERT_EQ(std::memcmp(part->tap.expert_up + slot * up,
                            full->tap.expert_up + slot * up, up * 4),
                0);
      ASSERT_EQ(std::memcmp(part->tap.expert_down + slot * down,
                            full->tap.expert_down + slot * down, down * 4),
                0);
      slots++;
    }
    const size_t width = 128 / kRanks;
    for (size_t r = 0; r < kRows; r++) {
      for (size_t half = 0; half < 2; half++) {
        const float* here = part->tap.ffn_up + (2 * r + half) * width;
        const float* there =
            full->tap.ffn_up + (2 * r + half) * 128 + rank * width;
        ASSERT_EQ(std::memcmp(here, there, width * 4), 0);
      }
    }
  }
  EXPECT_EQ(slots, kRows * kTopk);
}

TEST(Ranks, OneRankHasTheWholeSitesBits) {
  Site whole(harness_of(harness_config(96, 48, 24, 8, 128), 37, 24));
  Site only(whole, 0, 1);
  for (uint32_t rows : {1u, 8u, 20u}) {
    const harness_run run = harness_rows(2, rows);
    const Result a = whole.Run(run), b = only.Run(run);
    for (uint32_t r = 0; r < rows; r++) {
      EXPECT_EQ(harness_row_difference(whole.get(), a.get(), r, b.get(), r),
                nullptr);
    }
  }
}

// The bound can be missed: without one rank's part, or with the whole shared
// expert on two ranks.
TEST(Ranks, TheBoundSeesAMissingRankAndASharedExpertTwice) {
  Site whole(harness_of(harness_config(96, 48, 24, 8, 128), 38, 24));
  const moeplan_options options = Options().Float32();
  const harness_run run = RowsOf(8, &options);
  const Result full = whole.Run(run);
  for (uint32_t missing = 0; missing < 4; missing++) {
    std::vector<Result> parts = RunRanks(whole, run, 4);
    parts.erase(parts.begin() + missing);
    EXPECT_NE(SumDifference(*whole.get(), run, *full, parts), "") << missing;
  }
  std::vector<Result> parts = RunRanks(whole, run, 2);
  ASSERT_EQ(SumDifference(*whole.get(), run, *full, parts), "");
  harness shared = harness_of(harness_config(96, 48, 24, 8, 128), 38, 24);
  const std::vector<uint8_t> all(24, 1);
  shared.null_experts = all.data();
  Site again(shared);
  again.get()->site.shared = whole.get()->site.shared;
  std::memcpy(again.get()->x, whole.get()->x, 24 * 96 * 2);
  ASSERT_EQ(harness_write_site(again.get()), moeplan_status_success);
  parts.push_back(again.Run(run));
  EXPECT_NE(SumDifference(*whole.get(), run, *full, parts), "");
}

/* ---- moving an expert ---- */

// Two ranks swap an expert by rewriting their blobs; plans and config stay.
TEST(Ranks, ExpertsMoveBetweenRanks) {
  Site whole(harness_of(harness_config(96, 48, 24, 8, 128), 39, 24));
  Site first(whole, 0, 2), second(whole, 1, 2);
  const moeplan_options options = Options().Float32();
  const harness_run run = RowsOf(8, &options);
  const Result full = whole.Run(run);
  for (uint32_t e = 0; e < 12; e++) {
    harness_move_expert(first.get(), second.get(), e);
    harness_move_expert(second.get(), first.get(), 23 - e);
    ASSERT_EQ(harness_write_site(first.get()), moeplan_status_success);
    ASSERT_EQ(harness_write_site(second.get()), moeplan_status_success);
    std::vector<Result> parts;
    parts.push_back(first.Run(run));
    parts.push_back(second.Run(run));
    ASSERT_EQ(SumDifference(*whole.get(), run, *full, parts), "") << e;
  }
}

}  // namespace
