// Faults that users of MoE routers have met, on whole sites and in every recipe.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include "tests/harness_cc.h"

extern "C" {
#include "kernels/scalar.h"
}

namespace {

using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

struct Way {
  moeplan_recipe recipe;
  uint32_t rows;
};
constexpr Way kWays[] = {{moeplan_recipe_decode, 1},
                         {moeplan_recipe_verify, 2},
                         {moeplan_recipe_row_groups, 11},
                         {moeplan_recipe_per_row, 3},
                         {moeplan_recipe_prefill, 11}};

constexpr uint32_t kExperts[] = {1,   7,   8,   63,  64,  65,
                                 255, 256, 257, 288, 384, 1024};

harness Small(moeplan_config config, uint64_t seed) {
  harness h = harness_of(config, seed, 11);
  h.distinct_experts = 8;
  return h;
}

Result RunBy(Site& site, const Way& way, const moeplan_options& options,
             const std::vector<int32_t>& ids = {},
             const std::vector<float>& weights = {}) {
  harness_run run = harness_rows(0, way.rows);
  run.options = &options;
  run.topk_ids = ids.empty() ? nullptr : ids.data();
  run.topk_weights = weights.empty() ? nullptr : weights.data();
  Result result = site.Run(run);
  EXPECT_EQ(result->status, moeplan_status_success) << site.log();
  return result;
}

Result RunBy(Site& site, const Way& way) {
  return RunBy(site, way, Options().Recipe(way.recipe));
}

// y with no expert at all: the shared expert alone.
Result SharedOnly(Site& site, const Way& way) {
  const size_t slots = way.rows * site.topk();
  return RunBy(site, way, Options().Recipe(way.recipe),
               std::vector<int32_t>(slots, -1),
               std::vector<float>(slots, 1.0f));
}

bool SameY(Site& site, const Result& a, const Result& b, uint32_t rows) {
  return std::memcmp(a->y, b->y, rows * site.get()->config.hidden_size * 2) ==
         0;
}

// Every row the same router logit, times the sum of |x|.
void SetRouter(Site& site, uint16_t weight) {
  harness* h = site.get();
  const size_t hidden = h->config.hidden_size;
  auto* router = static_cast<uint16_t*>(const_cast<void*>(h->site.router));
  std::fill_n(router, h->config.n_routed_experts * hidden, weight);
  for (size_t i = 0; i < h->x_rows * hidden; i++) h->x[i] &= 0x7FFF;
}

// ---- selection -----------------------------------------------------------------

TEST(RouterFaults, TiesGoToTheLowestIdsAtEveryNumberOfExperts) {
  for (uint32_t experts : kExperts) {
    for (uint32_t topk : {1u, 8u, 9u, 32u}) {
      topk = std::min(topk, experts);
      harness h = Small(harness_config(16, 16, experts, topk, 16), experts);
      h.no_bias = true;
      Site site(h);
      SetRouter(site, 0x0000);
      for (const Way& way : kWays) {
        const Result result = RunBy(site, way);
        for (uint32_t slot = 0; slot < way.rows * topk; slot++) {
          ASSERT_EQ(result->ids[slot], static_cast<int32_t>(slot % topk))
              << experts << " experts, recipe " << way.recipe;
          ASSERT_TRUE(std::isfinite(result->weights[slot]));
        }
      }
    }
  }
}

TEST(RouterFaults, ARowOfNansGetsDistinctIdsInRange) {
  for (uint32_t experts : kExperts) {
    const uint32_t topk = std::min(experts, 8u);
    for (int softmax = 0; softmax < 2; softmax++) {
      moeplan_config config = harness_config(16, 16, experts, topk, 16);
      config.scoring =
          softmax != 0 ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
      Site site(Small(config, experts));
      const uint16_t bad[] = {0x7FC0, 0x7F80, 0xFF80, 0xFFFF};
      for (uint32_t r = 0; r < 11; r++) {
        site.get()->x[r * 16 + r] = bad[r % 4];
        if (r % 3 == 0) std::fill_n(site.get()->x + r * 16, 16, bad[r % 4]);
      }
      for (const Way& way : kWays) {
        const Result result = RunBy(site, way);
        for (uint32_t r = 0; r < way.rows; r++) {
          const int32_t* ids = result->ids + r * topk;
          ASSERT_EQ(std::set<int32_t>(ids, ids + topk).size(), topk);
          ASSERT_GE(*std::min_element(ids, ids + topk), 0);
          ASSERT_LT(*std::max_element(ids, ids + topk),
                    static_cast<int32_t>(experts));
        }
      }
    }
  }
}

// Biases near 7..35 with a spread of 0.04: the ids are those of a float32 sort
// of the plan's own logits, and a bf16 bias would have picked others.
TEST(RouterFaults, BiasStaysFloat32) {
  for (float middle : {7.0f, 35.0f}) {
    Site site(Small(harness_config(64, 16, 288, 8, 16), 1));
    harness* h = site.get();
    harness_random random = {2};
    std::vector<float> bias(288), narrow(288);
    for (size_t e = 0; e < 288; e++) {
      bias[e] = middle +
                0.04f * static_cast<float>(harness_below(&random, 997)) / 997;
      narrow[e] = moep_bf16_round(bias[e]);
    }
    h->site.router_bias = bias.data();
    ASSERT_EQ(harness_write_site(h), moeplan_status_success);
    for (const Way& way : kWays) {
      const Result result = RunBy(site, way);
      uint32_t others = 0;
      for (uint32_t r = 0; r < way.rows; r++) {
        const float* logits = result->tap.logits + r * 288;
        const auto pick = [&](const std::vector<float>& with) {
          std::vector<int32_t> order(288);
          std::iota(order.begin(), order.end(), 0);
          const auto key = [&](int32_t e) {
            const auto at = static_cast<size_t>(e);
            return 1.0f / (1.0f + moep_exp(-logits[at])) + with[at];
          };
          std::stable_sort(
              order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return key(a) > key(b); });
          order.resize(8);
          return order;
        };
        const int32_t* ids = result->ids + r * 8;
        ASSERT_EQ(std::vector<int32_t>(ids, ids + 8), pick(bias))
            << "recipe " << way.recipe << ", row " << r;
        others += pick(narrow) != pick(bias);
      }
      EXPECT_GE(others + 1, std::max(2u, way.rows)) << "biases near " << middle;
    }
  }
}

// ---- weights -------------------------------------------------------------------

TEST(RouterFaults, UnderflownSigmoidsLeaveTheSharedExpertAlone) {
  for (bool norm : {true, false}) {
    moeplan_config config = harness_config(96, 48, 24, 8, 32);
    config.norm_topk_prob = norm;
    Site site(Small(config, 3));
    SetRouter(site, 0xC280);  // -64
    for (const Way& way : kWays) {
      const Result result = RunBy(site, way);
      for (uint32_t slot = 0; slot < way.rows * 8; slot++) {
        ASSERT_LT(result->tap.logits[slot], -104.0f);
        ASSERT_EQ(moep_float_bits(result->weights[slot]), 0u);
      }
      EXPECT_TRUE(SameY(site, result, SharedOnly(site, way), way.rows))
          << "recipe " << way.recipe;
    }
  }
}

TEST(RouterFaults, ScaleIsAppliedOnceAndNeverToShared) {
  for (bool norm : {true, false}) {
    moeplan_config config = harness_config(96, 48, 24, 4, 32);
    config.norm_topk_prob = norm;
    config.routed_scaling_factor = 1.0f;
    Site one(Small(config, 4));
    config.routed_scaling_factor = 2.5f;
    Site scaled(Small(config, 4));
    config.routed_scaling_factor = 0.0f;
    Site none(Small(config, 4));
    for (const Way& way : kWays) {
      const Result a = RunBy(one, way), b = RunBy(scaled, way);
      for (uint32_t slot = 0; slot < way.rows * 4; slot++) {
        ASSERT_EQ(a->ids[slot], b->ids[slot]);
        ASSERT_EQ(b->weights[slot], a->weights[slot] * 2.5f);
      }
      const Result shared = SharedOnly(one, way);
      EXPECT_TRUE(SameY(one, shared, SharedOnly(scaled, way), way.rows));
      EXPECT_TRUE(SameY(one, shared, RunBy(none, way), way.rows));
      EXPECT_FALSE(SameY(one, a, b, way.rows));
      // Outside weights are not scaled: those of `one`, put into `scaled`.
      const Result outside =
          RunBy(scaled, way, Options().Recipe(way.recipe),
                std::vector<int32_t>(a->ids, a->ids + way.rows * 4),
                std::vector<float>(a->weights, a->weights + way.rows * 4));
      EXPECT_TRUE(SameY(one, outside, a, way.rows)) << "recipe " << way.recipe;
    }
  }
}

// ---- trace ---------------------------------------------------------------------

// A ring larger than the plan, run after run: it wraps, its cursor advances by
// the live rows, and y is that of a run without it.
TEST(RouterFaults, TraceRingWrapsInEveryRecipe) {
  for (const Way& way : kWays) {
    for (int outside = 0; outside < 2; outside++) {
      Site site(Small(harness_config(96, 48, 24, 4, 32), 5));
      harness* h = site.get();
      const uint32_t slots = way.rows * 4, capacity = way.rows + 3;
      const moeplan_options options = Options().Recipe(way.recipe);
      std::vector<int32_t> ids(slots), ring_ids(capacity * 4, -7);
      std::vector<float> weights(slots), ring_weights(capacity * 4, -7.0f);
      for (uint32_t slot = 0; slot < slots; slot++) {
        ids[slot] = static_cast<int32_t>(slot * 5 % 24);
        weights[slot] = static_cast<float>(slot) * 0.25f;
      }
      if (outside == 0) ids.clear();
      if (outside == 0) weights.clear();
      const Result plain = RunBy(site, way, options, ids, weights);
      moeplan_plan_t plan = nullptr;
      ASSERT_EQ(moeplan_plan_create(h->planner, way.rows, &options, &plan),
                moeplan_status_success);
      size_t bytes = 0;
      ASSERT_EQ(moeplan_workspace_size(h->planner, way.rows, nullptr, &bytes),
                moeplan_status_success);
      moeplan_binding binding = MOEPLAN_BINDING_INIT;
      uint64_t cursor = 0, expected = 0;
      int32_t live = 0;
      binding.site = h->blob;
      binding.x = h->x;
      binding.workspace = harness_allocate(h, bytes);
      binding.workspace_bytes = bytes;
      binding.live_rows = &live;
      binding.topk_ids = outside != 0 ? ids.data() : nullptr;
      binding.topk_weights = outside != 0 ? weights.data() : nullptr;
      for (int round = 0; round < 24; round++) {
        auto* y = static_cast<uint16_t*>(harness_allocate(h, way.rows * 192));
        auto* bare =
            static_cast<uint16_t*>(harness_allocate(h, way.rows * 192));
        live = round % static_cast<int32_t>(way.rows + 2);
        const uint32_t alive = std::min(way.rows, static_cast<uint32_t>(live));
        binding.trace = {};
        binding.y = bare;
        ASSERT_EQ(moeplan_enqueue(plan, &binding, nullptr),
                  moeplan_status_success);
        ASSERT_EQ(cursor, expected);
        binding.trace = {ring_ids.data(), ring_weights.data(), &cursor,
                         capacity};
        binding.y = y;
        const std::vector<int32_t> old = ring_ids;
        ASSERT_EQ(moeplan_enqueue(plan, &binding, nullptr),
                  moeplan_status_success)
            << site.log();
        ASSERT_EQ(std::memcmp(y, bare, way.rows * 192), 0);
        ASSERT_EQ(std::memcmp(y, plain->y, alive * 192), 0);
        for (uint32_t r = 0; r < capacity; r++) {
          const uint64_t at = (expected + r) % capacity * 4;
          const bool fresh = r < alive;
          ASSERT_EQ(std::memcmp(&ring_ids[at],
                                fresh ? plain->ids + r * 4 : &old[at], 16),
                    0)
              << "recipe " << way.recipe << ", round " << round;
          if (!fresh) continue;
          ASSERT_EQ(std::memcmp(&ring_weights[at], plain->weights + r * 4, 16),
                    0);
        }
        expected += alive;
        ASSERT_EQ(cursor, expected) << "recipe " << way.recipe;
      }
      moeplan_plan_destroy(plan);
    }
  }
}

}  // namespace
