// Routed sites on the GPU: plan sets, and sites rewritten under live graphs.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/gpu_site_run.h"

namespace {

using moeplan_test::GpuRun;
using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

// By the rule, and without the prefill recipe; of an intermediate width for which the
// blob has tensor maps, and of another.
class RoutedSetGpu : public testing::TestWithParam<std::tuple<bool, uint32_t>> {
 protected:
  static constexpr uint32_t kMost = 16;

  void SetUp() override {
    MOEP_NEEDS_GPU();
    host_ = std::make_unique<Site>(harness_of(
        harness_config(256, std::get<1>(GetParam()), 30, 7, 64), 8, kMost));
    gpu_ = std::make_unique<GpuSite>(*host_);
    ASSERT_NE(gpu_->planner(), nullptr);
    size_t bytes = 0;
    ASSERT_MOEPLAN(
        moeplan_workspace_size(gpu_->planner(), kMost, nullptr, &bytes));
    workspace_ = DeviceMemory(false, bytes);
    workspace_.fill(0xFF);
  }

  moeplan_set_t Set(const GpuRun& run, const std::vector<uint32_t>& counts) {
    moeplan_binding binding = run.binding();
    binding.workspace = workspace_.as();
    binding.workspace_bytes = workspace_.bytes();
    moeplan_set_t set = nullptr;
    EXPECT_MOEPLAN(moeplan_set_create(gpu_->planner(), &binding, counts.data(),
                                      counts.size(), &options_, &set))
        << gpu_->log();
    return set;
  }

  // After a replay for `rows` rows of the 16 that are bound.
  std::string Difference(GpuRun& run, uint32_t rows) {
    const Result result = run.Read();
    harness_run expected = run.run();
    expected.live_rows = static_cast<int32_t>(rows);
    return gpu_->Difference(expected, *result);
  }

  harness_run Wanted() const {
    harness_run wanted = harness_rows(0, kMost);
    wanted.options = &options_;
    return wanted;
  }

  std::unique_ptr<Site> host_;
  std::unique_ptr<GpuSite> gpu_;
  DeviceMemory workspace_;
  const moeplan_options options_ =
      std::get<0>(GetParam()) ? Options() : Options().NoGrouped();
};

INSTANTIATE_TEST_SUITE_P(
    , RoutedSetGpu,
    testing::Combine(testing::Bool(), testing::Values(208, 192)),
    [](const testing::TestParamInfo<std::tuple<bool, uint32_t>>& info) {
      return (std::get<0>(info.param) ? "ByTheRule" : "NoGrouped") +
             std::to_string(std::get<1>(info.param));
    });

TEST_P(RoutedSetGpu, ReplaysTheGraphOfEachRowCount) {
  const std::vector<uint32_t> counts = {1, 2, 3, 8, 11, kMost};
  GpuRun run(*gpu_, Wanted(), false);
  const moeplan_set_t set = Set(run, counts);
  for (uint32_t rows : counts) {
    run.Reset();
    ASSERT_MOEPLAN(moeplan_set_replay(set, rows, gpu_->stream()));
    ASSERT_EQ(Difference(run, rows), "");
  }
  EXPECT_EQ(moeplan_set_replay(set, 5, gpu_->stream()),
            moeplan_status_invalid_argument);
  moeplan_set_destroy(set);
}

TEST_P(RoutedSetGpu, LiveRowsFillUpToTheNextRowCount) {
  harness_run wanted = Wanted();
  wanted.live_rows = kMost;
  GpuRun run(*gpu_, wanted, false);
  const moeplan_set_t set = Set(run, {1, 2, 4, 8, kMost});
  for (uint32_t rows = kMost; rows > 0; rows--) {
    run.Reset();
    run.SetLiveRows(static_cast<int32_t>(rows));
    ASSERT_MOEPLAN(moeplan_set_replay(set, rows, gpu_->stream()));
    ASSERT_EQ(Difference(run, rows), "");
  }
  moeplan_set_destroy(set);
}

/* ---- the site's blob ---- */

TEST_P(RoutedSetGpu, RewritingTheBlobMovesExperts) {
  for (uint32_t rows : {1u, 8u, kMost}) {
    harness_run wanted = harness_rows(0, rows);
    wanted.options = &options_;
    GpuRun run(*gpu_, wanted, false);
    moeplan_graph_t graph = nullptr;
    ASSERT_MOEPLAN(moeplan_graph_create(run.plan(), &run.binding(), &graph));
    const int32_t* ids = gpu_->Alone(0)->ids;
    for (uint32_t expert :
         {static_cast<uint32_t>(ids[0]), static_cast<uint32_t>(ids[6]), 29u}) {
      gpu_->MoveExpert(expert);
      run.Reset();
      ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu_->stream()));
      const Result result = run.Read();
      ASSERT_EQ(gpu_->Difference(wanted, *result), "") << "expert " << expert;
    }
    moeplan_graph_destroy(graph);
  }
}

// Two plans over one site, one workspace each, take turns.
TEST_P(RoutedSetGpu, PlansOfOneSiteTakeTurns) {
  harness_run one = harness_rows(3, 1), many = harness_rows(3, 8);
  one.options = many.options = &options_;
  GpuRun first(*gpu_, one, false), second(*gpu_, many, false);
  for (int round = 0; round < 4; round++) {
    GpuRun& now = round % 2 == 0 ? first : second;
    GpuRun& then = round % 2 == 0 ? second : first;
    first.Reset();
    second.Reset();
    now.Launch(GpuWay::kGraph);
    then.Launch(GpuWay::kEnqueue);
    for (GpuRun* run : {&first, &second}) {
      const Result result = run->Read();
      ASSERT_EQ(gpu_->Difference(run->run(), *result), "") << round;
    }
  }
}

}  // namespace
