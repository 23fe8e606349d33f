// Numerics TIERED on a GPU, routed sites: the router and the shared expert of a
// prefill plan by cuBLASLt, all else as in INVARIANT.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/gpu_site_run.h"
#include "tests/reference.h"

namespace moeplan_test {

namespace {

constexpr uint32_t kRows = 64, kHidden = 512, kTopk = 8, kExperts = 48;

class TieredRoutedGpu : public testing::Test {
 protected:
  void SetUp() override {
    const char* reason = gpu_reason_to_skip(90);
    size_t version = 0;
    if (reason == nullptr &&
        moeplan_cublaslt_version(&version) != moeplan_status_success) {
      reason = "no libcublasLt.so.13";
    }
    if (reason != nullptr) GTEST_SKIP() << reason;
    options_.recipe = moeplan_recipe_prefill;
    options_.numerics = moeplan_numerics_tiered;
  }

  harness_run Rows(uint32_t rows) const {
    harness_run run = harness_rows(0, rows);
    run.options = &options_;
    return run;
  }

  // y of these rows against the formula, with the experts that were chosen.
  double Error(Site& host, const harness_result& result, uint32_t rows) const {
    const Reference reference(host.get()->config, host.get()->site);
    Vector y, wanted;
    for (size_t r = 0; r < rows; r++) {
      const Vector row =
          reference.Y(Bf16Values(host.get()->x + r * kHidden, kHidden),
                      result.ids + r * kTopk);
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    std::vector<uint16_t> bits(rows * kHidden);
    std::memcpy(bits.data(), result.y, bits.size() * 2);
    return RelativeL2(Bf16Values(bits.data(), bits.size()), wanted);
  }

  moeplan_options options_ = MOEPLAN_OPTIONS_INIT;
};

// The experts are the largest k, but for keys nearer than the logits' rounding.
void ExpectLargest(Site& host, const harness_result& result, uint32_t rows) {
  const Reference reference(host.get()->config, host.get()->site);
  for (size_t r = 0; r < rows; r++) {
    const Vector keys =
        reference.Keys(Bf16Values(host.get()->x + r * kHidden, kHidden));
    const int32_t* ids = result.ids + r * kTopk;
    const std::set<int32_t> chosen(ids, ids + kTopk);
    ASSERT_EQ(chosen.size(), kTopk) << "row " << r;
    double least = INFINITY, rest = -INFINITY;
    for (uint32_t e = 0; e < kExperts; e++) {
      if (chosen.count(static_cast<int32_t>(e)) != 0) {
        least = std::min(least, keys[e]);
      } else {
        rest = std::max(rest, keys[e]);
      }
    }
    EXPECT_GE(least, rest - 2e-6) << "row " << r;
  }
}

TEST_F(TieredRoutedGpu, EveryWayOfRunningGivesOneAnswerWithinTheAccuracy) {
  for (uint32_t width : {0u, 208u}) {
    Site host(harness_of(harness_config(kHidden, 256, kExperts, kTopk, width),
                         71, kRows));
    GpuSite gpu(host);
    for (uint32_t rows : {9u, 17u, kRows}) {
      const harness_run run = Rows(rows);
      const Result first = gpu.Run(run, GpuWay::kCapture);
      ASSERT_EQ(first->status, moeplan_status_success) << gpu.log();
      EXPECT_LE(Error(host, *first, rows), 0.0040) << rows;
      ExpectLargest(host, *first, rows);
      for (GpuWay way : {GpuWay::kEnqueue, GpuWay::kGraph, GpuWay::kChild}) {
        const Result again = gpu.Run(run, way);
        EXPECT_EQ(gpu.Difference(run, *again, first.get()), "")
            << gpu_way_name(way);
      }
    }
    EXPECT_TRUE(gpu.WeightsIntact());
  }
}

TEST_F(TieredRoutedGpu, DeadRowsAreUntouched) {
  Site host(harness_of(harness_config(kHidden, 256, kExperts, kTopk, 208), 72,
                       kRows));
  GpuSite gpu(host);
  harness_run run = Rows(kRows);
  const Result all = gpu.Run(run, GpuWay::kGraph);
  for (int32_t live : {0, 1, 9, 63, 64, 1000, -5}) {
    run.live_rows = live;
    const Result some = gpu.Run(run, GpuWay::kGraph);
    EXPECT_EQ(gpu.Difference(run, *some, all.get()), "") << live;
  }
}

// Routed from outside, a site without a shared expert gives cuBLASLt nothing to
// do: INVARIANT's bits.
TEST_F(TieredRoutedGpu, OnlyRouterAndSharedExpertDiffer) {
  Site host(
      harness_of(harness_config(kHidden, 256, kExperts, kTopk, 0), 73, kRows));
  GpuSite gpu(host);
  std::vector<int32_t> ids(kRows * kTopk);
  std::vector<float> weights(ids.size());
  for (size_t i = 0; i < ids.size(); i++) {
    ids[i] = static_cast<int32_t>(5 * i % kExperts);
    weights[i] = 0.125f + 0.01f * static_cast<float>(i % 7);
  }
  harness_run run = Rows(kRows);
  run.topk_ids = ids.data();
  run.topk_weights = weights.data();
  const Result tiered = gpu.Run(run, GpuWay::kGraph);
  moeplan_options invariant = options_;
  invariant.numerics = moeplan_numerics_invariant;
  run.options = &invariant;
  const Result plain = gpu.Run(run, GpuWay::kGraph);
  EXPECT_EQ(gpu.Difference(run, *tiered, plain.get()), "");
}

// Experts move by the device's blob; the graph stays.
TEST_F(TieredRoutedGpu, RewritingTheBlobMovesExperts) {
  Site host(harness_of(harness_config(kHidden, 256, kExperts, kTopk, 208), 74,
                       kRows));
  GpuSite gpu(host);
  const harness_run wanted = Rows(kRows);
  GpuRun run(gpu, wanted, false);
  moeplan_graph_t graph = nullptr;
  ASSERT_MOEPLAN(moeplan_graph_create(run.plan(), &run.binding(), &graph));
  ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu.stream()));
  const Result before = run.Read();
  for (uint32_t expert : {0u, 7u, kExperts - 1}) {
    gpu.MoveExpert(expert);
    run.Reset();
    ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu.stream()));
    const Result after = run.Read();
    EXPECT_EQ(gpu.Difference(wanted, *after, before.get()), "") << expert;
  }
  moeplan_graph_destroy(graph);
}

}  // namespace

}  // namespace moeplan_test
