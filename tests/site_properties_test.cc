// What must hold of every site, whatever its numbers: rows are independent,
// experts that nobody picks are not read, blobs and sets replay.

#include <gtest/gtest.h>
#include <sys/mman.h>

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

constexpr moeplan_recipe kRecipes[] = {
    moeplan_recipe_verify, moeplan_recipe_row_groups, moeplan_recipe_per_row,
    moeplan_recipe_prefill};

harness Small(uint64_t seed, uint32_t rows, uint32_t experts = 24,
              uint32_t topk = 4, uint32_t width = 32) {
  return harness_of(harness_config(96, 48, experts, topk, width), seed, rows);
}

Result RunBy(Site& site, uint32_t rows, const moeplan_options& options) {
  harness_run run = harness_rows(0, rows);
  run.options = &options;
  Result result = site.Run(run);
  EXPECT_EQ(result->status, moeplan_status_success) << site.log();
  return result;
}

void ExpectSameRow(Site& site, const Result& a, uint32_t row_a, const Result& b,
                   uint32_t row_b) {
  const char* difference =
      harness_row_difference(site.get(), a.get(), row_a, b.get(), row_b);
  EXPECT_EQ(difference, nullptr)
      << "row " << row_a << " differs in " << difference;
}

// y of a plan with float32 output, by hand from its accumulators: the combine in
// slot order over the slots that `here` names, then the shared expert.
template <typename Here>
void ExpectCombined(Site& site, const Result& y, const Result& taps,
                    uint32_t rows, Here here) {
  const harness* h = site.get();
  const uint32_t hidden = h->config.hidden_size, topk = site.topk();
  const auto* got = reinterpret_cast<const float*>(y->y);
  for (uint32_t r = 0; r < rows; r++) {
    for (uint32_t n = 0; n < hidden; n++) {
      float sum = 0.0f;
      for (uint32_t j = 0; j < topk; j++) {
        const uint32_t slot = r * topk + j;
        const int32_t id = taps->ids[slot];
        if (!here(id)) continue;
        const float s = h->site.down.weight_scale_2[id] * 0x1p26f;
        const float out =
            moep_bf16_round(taps->tap.expert_down[slot * hidden + n] * s);
        sum = std::fma(taps->weights[slot], out, sum);
      }
      if (h->config.shared_local_intermediate != 0) {
        sum = sum + taps->tap.ffn_down[r * hidden + n];
      }
      ASSERT_EQ(moep_float_bits(got[r * hidden + n]), moep_float_bits(sum))
          << "row " << r << ", column " << n;
    }
  }
}

bool Filled(int32_t id) { return id >= 0; }

// ---- rows ----------------------------------------------------------------------

TEST(SiteRows, PermutingRowsPermutesOutputs) {
  Site site(Small(1, 16)), mixed(Small(1, 16));
  const uint32_t hidden = 96;
  for (moeplan_recipe recipe : kRecipes) {
    for (uint32_t rows : {2u, 5u, 8u, 16u}) {
      if (recipe == moeplan_recipe_verify && rows > 8) continue;
      std::vector<uint32_t> from(rows);
      std::iota(from.begin(), from.end(), 0);
      std::reverse(from.begin(), from.end());
      std::rotate(from.begin(), from.begin() + rows / 3, from.end());
      for (uint32_t r = 0; r < rows; r++) {
        std::copy_n(site.get()->x + from[r] * hidden, hidden,
                    mixed.get()->x + r * hidden);
      }
      const moeplan_options options = Options().Recipe(recipe);
      const Result a = RunBy(site, rows, options);
      const Result b = RunBy(mixed, rows, options);
      for (uint32_t r = 0; r < rows; r++) ExpectSameRow(site, a, from[r], b, r);
    }
  }
}

TEST(SiteRows, ARowThatIsNotFiniteSpoilsNoOther) {
  for (uint16_t bad : {0x7FC0, 0xFFFF, 0x7F80, 0xFF80, 0x7F7F}) {
    Site site(Small(2, 12)), spoiled(Small(2, 12));
    for (uint32_t column : {0u, 50u}) {
      spoiled.get()->x[2 * 96 + column] = bad;
      spoiled.get()->x[7 * 96 + 95 - column] = bad;
    }
    for (moeplan_recipe recipe : kRecipes) {
      const uint32_t rows = recipe == moeplan_recipe_verify ? 8 : 12;
      const Result a = RunBy(site, rows, Options().Recipe(recipe));
      const Result b = RunBy(spoiled, rows, Options().Recipe(recipe));
      for (uint32_t r = 0; r < rows; r++) {
        if (r != 2 && r != 7) {
          ExpectSameRow(site, a, r, b, r);
          continue;
        }
        const int32_t* ids = b->ids + r * 4;
        EXPECT_EQ(std::set<int32_t>(ids, ids + 4).size(), 4u);
        for (int j = 0; j < 4; j++) EXPECT_TRUE(ids[j] >= 0 && ids[j] < 24);
      }
    }
  }
}

// ---- experts nobody picks ------------------------------------------------------

// A page that nobody may read.
void* Forbidden() {
  static void* page =
      mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page;
}

// Weights that cannot be read and NaN scales for experts outside `used`.
void Forbid(Site& site, const std::set<int32_t>& used) {
  harness* h = site.get();
  for (auto* p : {&h->site.gate, &h->site.up, &h->site.down}) {
    for (uint32_t e = 0; e < h->config.n_routed_experts; e++) {
      if (used.count(static_cast<int32_t>(e)) != 0) continue;
      const_cast<const void**>(p->weight)[e] = Forbidden();
      const_cast<const void**>(p->weight_scale)[e] = Forbidden();
    }
  }
  ASSERT_EQ(harness_write_site(h), moeplan_status_success);
  auto* table = static_cast<moep_site_table*>(h->blob);
  for (uint32_t e = 0; e < h->config.n_routed_experts; e++) {
    if (used.count(static_cast<int32_t>(e)) != 0) continue;
    for (auto* p : {&table->experts[e].gate, &table->experts[e].up,
                    &table->experts[e].down}) {
      p->epilogue = std::nanf("");
    }
  }
}

TEST(SiteExperts, IdleExpertsAreNotRead) {
  for (moeplan_recipe recipe : kRecipes) {
    Site site(Small(3, 8, 64));
    const Result before = RunBy(site, 8, Options().Recipe(recipe));
    const std::set<int32_t> used(before->ids, before->ids + 8 * 4);
    ASSERT_LT(used.size(), 64u);
    Forbid(site, used);
    const Result after = RunBy(site, 8, Options().Recipe(recipe));
    for (uint32_t r = 0; r < 8; r++) ExpectSameRow(site, before, r, after, r);
  }
}

TEST(SiteExperts, DeadRowsAndMaskedSlotsReadNone) {
  // Row r wants expert r alone; slots 1..3 are masked, with NaN for a weight.
  std::vector<int32_t> ids(8 * 4, -1);
  std::vector<float> weights(8 * 4, std::nanf(""));
  const int32_t masks[] = {-1, 24, INT32_MIN, INT32_MAX};
  for (uint32_t slot = 0; slot < 32; slot++) {
    ids[slot] = slot % 4 == 0 ? static_cast<int32_t>(slot / 4)
                              : masks[(slot + slot / 4) % 4];
    if (slot % 4 == 0) weights[slot] = 0.5f;
  }
  for (moeplan_recipe recipe : kRecipes) {
    Site site(Small(4, 8));
    Forbid(site, {0, 1, 2, 3, 4});
    const moeplan_options options = Options().Recipe(recipe).Float32();
    harness_run run = harness_rows(0, 8);
    run.options = &options;
    run.topk_ids = ids.data();
    run.topk_weights = weights.data();
    run.live_rows = 5;
    const Result result = site.Run(run);
    ASSERT_EQ(result->status, moeplan_status_success) << site.log();
    ExpectCombined(site, result, result, 5, Filled);
  }
}

TEST(SiteExperts, NullOnesContributeExactlyNothing) {
  std::vector<uint8_t> some(24, 0), one(24, 0), all(24, 1), rest(24, 1);
  for (size_t e = 0; e < 24; e += 3) some[e] = 1;
  one[7] = 1;
  rest[7] = 0;
  for (const auto* nulls : {&some, &one, &all, &rest}) {
    for (moeplan_recipe recipe : kRecipes) {
      Site whole(Small(5, 8));
      const moeplan_options options = Options().Recipe(recipe).Float32();
      const Result full = RunBy(whole, 8, options);
      ExpectCombined(whole, full, full, 8, Filled);
      harness h = Small(5, 8);
      h.null_experts = nulls->data();
      Site part(h);
      // The same bytes as the whole site's for those that are here.
      harness *a = part.get(), *b = whole.get();
      b->site.router_bias = a->site.router_bias = nullptr;
      a->site.router = b->site.router;
      a->site.shared = b->site.shared;
      for (auto member :
           {&moeplan_site::gate, &moeplan_site::up, &moeplan_site::down}) {
        moeplan_projection& to = a->site.*member;
        const moeplan_projection& from = b->site.*member;
        to.weight_scale_2 = from.weight_scale_2;
        for (size_t e = 0; e < 24; e++) {
          if ((*nulls)[e] != 0) continue;
          const_cast<const void**>(to.weight)[e] = from.weight[e];
          const_cast<const void**>(to.weight_scale)[e] = from.weight_scale[e];
        }
      }
      ASSERT_EQ(harness_write_site(a), moeplan_status_success);
      ASSERT_EQ(harness_write_site(b), moeplan_status_success);
      const Result taps = RunBy(whole, 8, options);
      const Result y = RunBy(part, 8, options);
      ASSERT_EQ(std::memcmp(y->ids, taps->ids, 8 * 4 * 4), 0);
      ExpectCombined(whole, y, taps, 8, [&](int32_t id) {
        return (*nulls)[static_cast<size_t>(id)] == 0;
      });
    }
  }
}

// ---- external routing ----------------------------------------------------------

TEST(SiteRouting, RepeatedIdsCountEachTime) {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int32_t r = 0; r < 8; r++) {
    ids.insert(ids.end(), {r % 3, 5, r % 3, r % 2 == 0 ? 5 : r % 3});
    weights.insert(weights.end(), {0.25f, -1.5f, 3.0f, 0.125f});
  }
  for (moeplan_recipe recipe : kRecipes) {
    Site site(Small(7, 8));
    const moeplan_options options = Options().Recipe(recipe).Float32();
    harness_run run = harness_rows(0, 8);
    run.options = &options;
    run.topk_ids = ids.data();
    run.topk_weights = weights.data();
    const Result result = site.Run(run);
    ASSERT_EQ(result->status, moeplan_status_success) << site.log();
    EXPECT_EQ(std::memcmp(result->ids, ids.data(), ids.size() * 4), 0);
    EXPECT_EQ(std::memcmp(result->weights, weights.data(), ids.size() * 4), 0);
    ExpectCombined(site, result, result, 8, Filled);
  }
}

// ---- bindings, graphs, sets -----------------------------------------------------

// A binding of the caller's own, over memory of the harness.
struct Bound {
  Bound(Site& site, uint32_t rows) {
    harness* h = site.get();
    bytes = rows * h->config.hidden_size * 2;
    size_t workspace = 0;
    EXPECT_EQ(moeplan_workspace_size(h->planner, rows, nullptr, &workspace),
              moeplan_status_success);
    binding.site = h->blob;
    binding.x = h->x;
    binding.y = y = static_cast<uint8_t*>(harness_allocate(h, bytes));
    binding.workspace = harness_allocate(h, workspace);
    binding.workspace_bytes = workspace;
    binding.live_rows = nullptr;
  }
  // y after one more run, on memory of 0xEE bytes.
  template <typename Run>
  std::vector<uint8_t> After(Run run) {
    std::memset(y, 0xEE, bytes);
    EXPECT_EQ(run(), moeplan_status_success);
    return std::vector<uint8_t>(y, y + bytes);
  }
  moeplan_binding binding = MOEPLAN_BINDING_INIT;
  uint8_t* y;
  size_t bytes;
};

TEST(SiteBlob, RewritingItMovesExpertsUnderAGraph) {
  for (uint32_t rows : {1u, 8u, 12u}) {
    Site site(Small(8, rows));
    harness* h = site.get();
    Bound bound(site, rows);
    moeplan_plan_t plan = nullptr;
    moeplan_graph_t graph = nullptr;
    ASSERT_EQ(moeplan_plan_create(h->planner, rows, nullptr, &plan),
              moeplan_status_success);
    ASSERT_EQ(moeplan_graph_create(plan, &bound.binding, &graph),
              moeplan_status_success);
    const auto replay = [&] { return moeplan_graph_replay(graph, nullptr); };
    const std::vector<uint8_t> before = bound.After(replay);
    const size_t weight = 96 * 48 / 2, scale = 96 * 48 / 16;
    for (auto* p : {&h->site.gate, &h->site.up, &h->site.down}) {
      for (uint32_t e = 0; e < 24; e++) {
        auto* moved = static_cast<uint8_t*>(harness_allocate(h, 4096));
        auto* old = static_cast<uint8_t*>(const_cast<void*>(p->weight[e]));
        std::memcpy(moved, old, weight + scale);
        std::memset(old, 0x5B, weight + scale);
        const_cast<const void**>(p->weight)[e] = moved;
        const_cast<const void**>(p->weight_scale)[e] = moved + weight;
      }
    }
    ASSERT_EQ(harness_write_site(h), moeplan_status_success);
    EXPECT_EQ(bound.After(replay), before) << rows << " rows";
    // Another expert's bytes at every id: another answer, that of a new plan.
    for (auto* p : {&h->site.gate, &h->site.up, &h->site.down}) {
      std::rotate(const_cast<const void**>(p->weight),
                  const_cast<const void**>(p->weight) + 5,
                  const_cast<const void**>(p->weight) + 24);
    }
    ASSERT_EQ(harness_write_site(h), moeplan_status_success);
    const std::vector<uint8_t> rotated = bound.After(replay);
    EXPECT_NE(rotated, before);
    EXPECT_EQ(bound.After([&] {
      return moeplan_enqueue(plan, &bound.binding, nullptr);
    }),
              rotated);
    moeplan_graph_destroy(graph);
    moeplan_plan_destroy(plan);
  }
}

TEST(SiteLiveRows, AreClamped) {
  Site site(Small(9, 12));
  const Result alone = site.Run(harness_rows(0, 12));
  for (uint32_t rows : {1u, 8u, 12u}) {
    Bound bound(site, rows);
    int32_t live = 0;
    bound.binding.live_rows = &live;
    moeplan_plan_t plan = nullptr;
    ASSERT_EQ(moeplan_plan_create(site.get()->planner, rows, nullptr, &plan),
              moeplan_status_success);
    for (int32_t value : {INT32_MIN, -1, 0, 1, 7, 12, 13, INT32_MAX}) {
      live = value;
      const std::vector<uint8_t> y = bound.After(
          [&] { return moeplan_enqueue(plan, &bound.binding, nullptr); });
      const auto alive = static_cast<size_t>(
          std::min<int64_t>(rows, std::max<int64_t>(0, value)));
      EXPECT_EQ(std::memcmp(y.data(), alone->y, alive * 96 * 2), 0) << value;
      for (size_t i = alive * 96 * 2; i < y.size(); i++) ASSERT_EQ(y[i], 0xEE);
    }
    moeplan_plan_destroy(plan);
  }
}

TEST(SiteSet, ReplaysTheCountOrTheNextLargerWithLiveRows) {
  const uint32_t counts[] = {1, 4, 12};
  Site site(Small(10, 12));
  const Result alone = site.Run(harness_rows(0, 12));
  for (bool with_live : {false, true}) {
    Bound bound(site, 12);
    int32_t live = 0;
    if (with_live) bound.binding.live_rows = &live;
    moeplan_set_t set = nullptr;
    ASSERT_EQ(moeplan_set_create(site.get()->planner, &bound.binding, counts, 3,
                                 nullptr, &set),
              moeplan_status_success);
    for (uint32_t rows = 0; rows <= 14; rows++) {
      live = static_cast<int32_t>(rows);
      const bool exact = std::count(counts, counts + 3, rows) != 0;
      if (rows == 0 || rows > 12 || (!exact && !with_live)) {
        EXPECT_EQ(moeplan_set_replay(set, rows, nullptr),
                  moeplan_status_invalid_argument);
        continue;
      }
      const std::vector<uint8_t> y =
          bound.After([&] { return moeplan_set_replay(set, rows, nullptr); });
      EXPECT_EQ(std::memcmp(y.data(), alone->y, rows * 96 * 2), 0) << rows;
      for (size_t i = rows * 96 * 2; i < y.size(); i++) ASSERT_EQ(y[i], 0xEE);
    }
    moeplan_set_destroy(set);
  }
}

}  // namespace
