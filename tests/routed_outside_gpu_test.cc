// Routed sites on the GPU whose ids and weights come from outside: the host's
// accumulators and y, whatever the ids are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/gpu_site.h"

namespace {

using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

struct External {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// Every fourth slot unfilled or out of range; `repeats`: ids come several times
// in a row.
External RandomRouting(uint32_t rows, uint32_t topk, uint32_t experts,
                       bool repeats, uint64_t seed) {
  const int32_t odd[] = {-1, static_cast<int32_t>(experts), INT32_MAX,
                         INT32_MIN};
  harness_random random = {seed};
  External external;
  for (uint32_t slot = 0; slot < rows * topk; slot++) {
    const uint32_t range = repeats ? 3 : experts;
    int32_t id = static_cast<int32_t>(repeats ? harness_below(&random, range)
                                              : (slot / topk + slot * 7) %
                                                    experts);  // 7: no repeats
    float weight = static_cast<float>(harness_below(&random, 2000)) * 0x1p-9f;
    if (harness_below(&random, 4) == 0) {
      id = odd[harness_below(&random, 4)];
      weight = NAN;
    }
    external.ids.push_back(id);
    external.weights.push_back(weight - 1.0f);
  }
  return external;
}

TEST(RoutedOutsideGpu, WithASharedExpert) {
  MOEP_NEEDS_SM90();
  const uint32_t experts = 30, topk = 8;
  Site host(harness_of(harness_config(256, 208, experts, topk, 32), 100, 24));
  GpuSite gpu(host);
  for (bool repeats : {false, true}) {
    for (uint32_t rows : {1u, 2u, 5u, 8u, 9u, 20u}) {
      External external = RandomRouting(rows, topk, experts, repeats, rows);
      if (rows == 5) std::fill_n(external.ids.begin() + topk, topk, -1);
      if (rows == 9) std::fill(external.ids.begin(), external.ids.end(), 4);
      harness_run run = harness_rows(1, rows);
      run.topk_ids = external.ids.data();
      run.topk_weights = external.weights.data();
      const Result expected = host.Run(run);
      ASSERT_EQ(expected->status, moeplan_status_success) << host.log();
      for (moeplan_recipe recipe :
           {moeplan_recipe_row_groups, moeplan_recipe_per_row,
            moeplan_recipe_prefill}) {
        const moeplan_options options = Options().Recipe(recipe);
        run.options = &options;
        const Result result = gpu.Run(run, GpuWay::kTap);
        ASSERT_EQ(gpu.Difference(run, *result, expected.get()), "")
            << "repeats " << repeats << ", recipe " << recipe;
      }
    }
  }
}

// Where nothing is tapped, decode and verify have an instance of their own here
// (GroupBlock's kBare in kernels/group.cuh).
TEST(RoutedOutsideGpu, WithoutASharedExpert) {
  MOEP_NEEDS_SM90();
  constexpr uint32_t kTopK = 8;
  constexpr struct {
    uint32_t hidden, inter, experts;
    int spread;
    uint32_t distinct;  // experts with bytes of their own; 0: all
  } kSites[] = {
      {512, 512, 30, 2, 0},
      {1536, 1024, 30, 12, 0},
      {2560, 512, 16, 2, 0},  // a segment, and a shorter one
      {6144, 2048, 12, 2, 4},
  };
  for (const auto& s : kSites) {
    SCOPED_TRACE(s.hidden);
    harness h = harness_of(
        harness_config(s.hidden, s.inter, s.experts, kTopK, 0), 101, 12);
    h.spread = s.spread;
    h.distinct_experts = s.distinct;
    Site host(h);
    GpuSite gpu(host);
    for (bool repeats : {false, true}) {
      for (uint32_t rows : {1u, 2u, 5u, 8u}) {
        External external =
            RandomRouting(rows, kTopK, s.experts, repeats, rows);
        harness_run run = harness_rows(1, rows);
        run.topk_ids = external.ids.data();
        run.topk_weights = external.weights.data();
        const Result expected = host.Run(run);
        ASSERT_EQ(expected->status, moeplan_status_success) << host.log();
        for (GpuWay way : {GpuWay::kTap, GpuWay::kEnqueue, GpuWay::kGraph}) {
          const Result result = gpu.Run(run, way);
          ASSERT_EQ(gpu.Difference(run, *result, expected.get()), "")
              << rows << " rows, repeats " << repeats;
        }
      }
    }
  }
}

}  // namespace
