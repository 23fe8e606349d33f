// One answer per row: whatever the recipe, row count, position, neighbours,
// padding or way of running, row r has the same float32 accumulators, routing
// and y. Every plan is held to the row's own decode (or one-row dense) plan.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/harness_cc.h"

namespace {

using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

// Runs `rows` rows from `first` and compares each with its own plan of one row.
void ExpectSameRows(Site& site, uint32_t first, uint32_t rows,
                    const moeplan_options& options, const char* what) {
  harness_run run = harness_rows(first, rows);
  run.options = &options;
  const Result result = site.Run(run);
  ASSERT_EQ(result->status, moeplan_status_success) << what << site.log();
  EXPECT_TRUE(result->guards_intact) << what;
  for (uint32_t r = 0; r < rows; r++) {
    const char* difference = harness_row_difference(site.get(), result.get(), r,
                                                    site.Alone(first + r), 0);
    ASSERT_EQ(difference, nullptr)
        << what << ": row " << r << " of " << rows << " from " << first
        << " differs in " << difference << ", seed " << site.get()->seed;
  }
}

// Every recipe that takes `rows` rows, and every lever that changes the plan.
void ExpectSameRowsByEveryRecipe(Site& site, uint32_t first, uint32_t rows) {
  const uint32_t cap = std::min(8u, 64 / site.topk());
  ExpectSameRows(site, first, rows, Options(), "auto");
  ExpectSameRows(site, first, rows, Options().Recipe(moeplan_recipe_prefill),
                 "prefill");
  ExpectSameRows(site, first, rows, Options().Recipe(moeplan_recipe_row_groups),
                 "row_groups");
  ExpectSameRows(site, first, rows, Options().Recipe(moeplan_recipe_per_row),
                 "per_row");
  ExpectSameRows(site, first, rows, Options().HostDispatch(), "host_dispatch");
  if (rows <= cap) {
    ExpectSameRows(site, first, rows, Options().Recipe(moeplan_recipe_verify),
                   "verify");
  }
}

TEST(OneAnswer, EveryRecipeAtRows1To70) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 1, 80));
  for (uint32_t rows = 1; rows <= 70; rows++) {
    ExpectSameRowsByEveryRecipe(site, rows % 11, rows);
    if (HasFatalFailure()) return;
  }
}

TEST(OneAnswer, WidePaddedWidthsAndSegments) {
  // hidden over two segments of 2048 and five of the router's; inter padded.
  Site site(harness_of(harness_config(2320, 208, 9, 4, 80), 2, 20));
  for (uint32_t rows : {1u, 2u, 7u, 8u, 9u, 17u, 20u}) {
    ExpectSameRowsByEveryRecipe(site, 0, rows);
    if (HasFatalFailure()) return;
  }
}

TEST(OneAnswer, SpreadOperands) {
  harness h = harness_of(harness_config(528, 160, 16, 8, 64), 3, 24);
  h.spread = 12;
  Site site(h);
  for (uint32_t rows : {1u, 3u, 8u, 9u, 16u, 24u}) {
    ExpectSameRowsByEveryRecipe(site, 0, rows);
    if (HasFatalFailure()) return;
  }
}

TEST(OneAnswer, WithoutSharedExpertAndWithoutBias) {
  harness h = harness_of(harness_config(160, 96, 65, 6, 0), 4, 24);
  h.no_bias = true;
  Site site(h);
  for (uint32_t rows : {1u, 2u, 5u, 9u, 24u}) {
    ExpectSameRowsByEveryRecipe(site, 0, rows);
    if (HasFatalFailure()) return;
  }
}

TEST(OneAnswer, ManyChoicesNarrowTheGroups) {
  for (uint32_t topk : {9u, 16u, 32u}) {
    Site site(harness_of(harness_config(64, 32, 40, topk, 16), 5, 24));
    for (uint32_t rows : {1u, 2u, 4u, 7u, 8u, 24u}) {
      ExpectSameRowsByEveryRecipe(site, 0, rows);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(OneAnswer, RouterVariants) {
  for (int variant = 0; variant < 4; variant++) {
    moeplan_config config = harness_config(128, 32, 40, 8, 32);
    config.scoring =
        variant & 1 ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
    config.norm_topk_prob = (variant & 2) != 0;
    config.router_bf16_ladder = (variant & 2) == 0;
    Site site(harness_of(config, 6, 20));
    for (uint32_t rows : {1u, 8u, 20u}) {
      ExpectSameRowsByEveryRecipe(site, 0, rows);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(OneAnswer, EveryTile) {
  Site site(harness_of(harness_config(128, 64, 5, 2, 32), 7, 70));
  for (const char* tile : {"n8", "n16", "n32", "n48", "n64", "n80", "n96",
                           "n128", "n256", "base"}) {
    ExpectSameRows(site, 0, 70, Options().Tile(tile), tile);
  }
}

TEST(OneAnswer, EveryUnionCap) {
  Site site(harness_of(harness_config(64, 32, 12, 4, 16), 8, 30));
  for (uint32_t cap = 1; cap <= 8; cap++) {
    for (uint32_t rows : {2u, 3u, 9u, 30u}) {
      ExpectSameRows(site, 0, rows, Options().NoGrouped().RowBatchMax(cap),
                     "cap");
    }
  }
}

TEST(OneAnswer, ThreadsDoNotMatter) {
  Site site(harness_of(harness_config(512, 256, 16, 8, 128), 9, 16));
  for (uint32_t threads : {1u, 2u, 5u}) {
    ExpectSameRows(site, 0, 16, Options().SmLimit(threads), "prefill");
    ExpectSameRows(site, 0, 8, Options().SmLimit(threads), "verify");
  }
}

TEST(OneAnswer, NullExpertsAtEveryRecipe) {
  std::vector<uint8_t> some(24, 0), rest(24, 1), all(24, 1);
  for (int e = 0; e < 24; e += 3) some[e] = 1;
  rest[5] = 0;
  for (const auto* nulls : {&some, &rest, &all}) {
    harness h = harness_of(harness_config(96, 48, 24, 8, 32), 10, 20);
    h.null_experts = nulls->data();
    Site site(h);
    for (uint32_t rows : {1u, 4u, 8u, 20u}) {
      ExpectSameRowsByEveryRecipe(site, 0, rows);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(OneAnswer, DenseAtRows1To40) {
  Site site(harness_of(harness_dense_config(2320, 208), 11, 40));
  for (uint32_t rows = 1; rows <= 40; rows++) {
    ExpectSameRows(site, (40 - rows) / 2, rows, Options(), "dense");
    if (HasFatalFailure()) return;
  }
}

TEST(OneAnswer, PoisonDoesNotMatter) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 12, 20));
  for (uint8_t poison : {0x00, 0x7F, 0x80, 0xFF}) {
    for (uint32_t rows : {1u, 4u, 20u}) {
      harness_run run = harness_rows(0, rows);
      run.way = harness_way_enqueue;
      run.poison = poison;
      const Result result = site.Run(run);
      for (uint32_t r = 0; r < rows; r++) {
        EXPECT_EQ(harness_row_difference(site.get(), result.get(), r,
                                         site.Alone(r), 0),
                  nullptr);
      }
    }
  }
}

TEST(OneAnswer, GraphEqualsEnqueueEqualsInPlace) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 13, 20));
  for (uint32_t rows : {1u, 4u, 9u, 20u}) {
    for (bool in_place : {false, true}) {
      for (harness_way way : {harness_way_enqueue, harness_way_graph}) {
        harness_run run = harness_rows(0, rows);
        run.way = way;
        run.in_place = in_place;
        const Result result = site.Run(run);
        ASSERT_EQ(result->status, moeplan_status_success);
        EXPECT_TRUE(result->guards_intact);
        for (uint32_t r = 0; r < rows; r++) {
          EXPECT_EQ(harness_row_difference(site.get(), result.get(), r,
                                           site.Alone(r), 0),
                    nullptr)
              << rows << " rows, in place " << in_place << ", way " << way;
        }
      }
    }
  }
}

// Rows past live_rows leave y, trace and accumulators alone.
TEST(OneAnswer, LiveRowsAtEveryRecipe) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 14, 12));
  const moeplan_recipe recipes[] = {moeplan_recipe_auto, moeplan_recipe_prefill,
                                    moeplan_recipe_row_groups,
                                    moeplan_recipe_per_row};
  for (uint32_t rows : {1u, 7u, 12u}) {
    for (moeplan_recipe recipe : recipes) {
      const moeplan_options options = Options().Recipe(recipe);
      for (int32_t live : {-5, 0, 1, 6, 12, 1000}) {
        harness_run run = harness_rows(0, rows);
        run.options = &options;
        run.live_rows = live < 0 ? 0 : live;
        const Result result = site.Run(run);
        ASSERT_EQ(result->status, moeplan_status_success);
        const uint32_t alive = std::min<uint32_t>(live < 0 ? 0 : live, rows);
        EXPECT_EQ(result->traced, alive);
        for (uint32_t r = 0; r < alive; r++) {
          ASSERT_EQ(harness_row_difference(site.get(), result.get(), r,
                                           site.Alone(r), 0),
                    nullptr);
        }
        for (uint32_t i = alive * 96 * 2; i < rows * 96 * 2; i++) {
          ASSERT_EQ(result->y[i], 0xFF) << "dead row written";
        }
        const auto* down =
            reinterpret_cast<const uint8_t*>(result->tap.expert_down);
        for (size_t i = alive * result->tap_bytes[2];
             i < rows * result->tap_bytes[2]; i++) {
          ASSERT_EQ(down[i], 0xFF) << "dead row computed";
        }
      }
    }
  }
}

TEST(OneAnswer, Float32OutputRoundsToTheBf16One) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 15, 20));
  const moeplan_options options = Options().Float32();
  for (uint32_t rows : {1u, 4u, 20u}) {
    harness_run run = harness_rows(0, rows);
    run.options = &options;
    const Result result = site.Run(run);
    ASSERT_EQ(result->status, moeplan_status_success);
    const auto* y = reinterpret_cast<const float*>(result->y);
    for (uint32_t r = 0; r < rows; r++) {
      const auto* alone = reinterpret_cast<const uint16_t*>(site.Alone(r)->y);
      for (uint32_t n = 0; n < 96; n++) {
        ASSERT_EQ(moep_bf16_from_float(y[r * 96 + n]), alone[n]);
      }
    }
  }
}

}  // namespace
