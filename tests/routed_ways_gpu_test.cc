// Routed sites on the GPU: the ways of running a plan, its bindings and levers
// change no bit of any row.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu_site_run.h"

namespace {

using moeplan_test::GpuRun;
using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

constexpr GpuWay kWays[] = {GpuWay::kEnqueue, GpuWay::kGraph, GpuWay::kChild,
                            GpuWay::kCapture};

// One site for all tests, its rows computed once.
class RoutedWaysGpu : public testing::Test {
 protected:
  static constexpr uint32_t kHidden = 512, kTopk = 6, kExperts = 20;

  static void TearDownTestSuite() {
    delete gpu_;
    delete host_;
    gpu_ = nullptr;
    host_ = nullptr;
  }

  void SetUp() override {
    MOEP_NEEDS_GPU();
    if (gpu_ == nullptr) {
      host_ = new Site(harness_of(
          harness_config(kHidden, 288, kExperts, kTopk, 128), 7, 80));
      gpu_ = new GpuSite(*host_);
    }
    ASSERT_NE(gpu_->planner(), nullptr);
  }

  // Options of each recipe that takes `rows` rows.
  static std::vector<moeplan_options> Recipes(uint32_t rows) {
    std::vector<moeplan_options> all = {
        Options().NoGrouped(), Options().Recipe(moeplan_recipe_row_groups),
        Options().Recipe(moeplan_recipe_prefill)};
    if (rows > 1) all.push_back(Options().Recipe(moeplan_recipe_per_row));
    return all;
  }

  static void Expect(const harness_run& run, GpuWay way,
                     const harness_result* expected = nullptr) {
    const Result result = gpu_->Run(run, way);
    ASSERT_EQ(gpu_->Difference(run, *result, expected), "")
        << gpu_way_name(way) << ", recipe "
        << (run.options != nullptr ? run.options->recipe : 0);
  }

  static void ExpectEveryRecipe(harness_run run, GpuWay way) {
    for (const moeplan_options& options : Recipes(run.rows)) {
      run.options = &options;
      Expect(run, way);
      if (HasFatalFailure()) return;
    }
  }

  static moeplan_graph_t Graph(const GpuRun& run) {
    moeplan_graph_t graph = nullptr;
    EXPECT_MOEPLAN(moeplan_graph_create(run.plan(), &run.binding(), &graph));
    return graph;
  }

  static std::string Difference(GpuRun& run) {
    const Result result = run.Read();
    return gpu_->Difference(run.run(), *result);
  }

  static Site* host_;
  static GpuSite* gpu_;
};

Site* RoutedWaysGpu::host_ = nullptr;
GpuSite* RoutedWaysGpu::gpu_ = nullptr;

TEST_F(RoutedWaysGpu, GraphEqualsEnqueueEqualsChildEqualsCapture) {
  for (GpuWay way : kWays) {
    for (uint32_t rows : {1u, 2u, 5u, 8u, 9u, 24u}) {
      ExpectEveryRecipe(harness_rows(rows, rows), way);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, YMayBeX) {
  for (GpuWay way : kWays) {
    for (uint32_t rows : {1u, 3u, 8u, 9u, 24u}) {
      harness_run run = harness_rows(2, rows);
      run.in_place = true;
      ExpectEveryRecipe(run, way);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, PoisonDoesNotMatter) {
  for (int poison : {0x00, 0x3F, 0x7F, 0x80, 0xFF}) {
    for (uint32_t rows : {1u, 8u, 20u}) {
      harness_run run = harness_rows(4, rows);
      run.poison = static_cast<uint8_t>(poison);
      ExpectEveryRecipe(run, GpuWay::kEnqueue);
      ExpectEveryRecipe(run, GpuWay::kGraph);
      if (HasFatalFailure()) FAIL() << "poison " << poison;
    }
  }
}

TEST_F(RoutedWaysGpu, ProgrammaticLaunchChangesNoBit) {
  for (uint32_t rows : {1u, 5u, 8u, 24u}) {
    for (moeplan_options options : Recipes(rows)) {
      options.no_pdl = true;
      harness_run run = harness_rows(1, rows);
      run.options = &options;
      Expect(run, GpuWay::kTap);
      Expect(run, GpuWay::kGraph);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, FewerSmsChangeNoBit) {
  for (uint32_t limit : {1u, 7u, 131u, 4000u}) {
    for (uint32_t rows : {1u, 5u, 8u, 17u}) {
      for (moeplan_options options : Recipes(rows)) {
        options.sm_limit = limit;
        harness_run run = harness_rows(1, rows);
        run.options = &options;
        Expect(run, GpuWay::kTap);
        if (HasFatalFailure()) FAIL() << "sm_limit " << limit;
      }
    }
  }
}

/* ---- bindings ---- */

TEST_F(RoutedWaysGpu, RowsPastLiveRowsAreUntouched) {
  for (uint32_t rows : {1u, 8u, 20u}) {
    const int32_t all = static_cast<int32_t>(rows);
    for (int32_t live :
         {-5, 0, 1, all / 2, all - 1, all, all + 1, INT32_MAX, INT32_MIN}) {
      harness_run run = harness_rows(3, rows);
      run.live_rows = live;
      ExpectEveryRecipe(run, GpuWay::kTap);
      ExpectEveryRecipe(run, GpuWay::kGraph);
      run.in_place = true;
      ExpectEveryRecipe(run, GpuWay::kEnqueue);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, LiveRowsIsReadAtReplay) {
  for (uint32_t rows : {8u, 20u}) {
    for (const moeplan_options& options : Recipes(rows)) {
      harness_run wanted = harness_rows(0, rows);
      wanted.options = &options;
      wanted.live_rows = static_cast<int32_t>(rows);
      GpuRun run(*gpu_, wanted, false);
      const moeplan_graph_t graph = Graph(run);
      for (int32_t live : {3, 0, static_cast<int32_t>(rows), 1, 7}) {
        run.Reset();
        run.SetLiveRows(live);
        ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu_->stream()));
        ASSERT_EQ(Difference(run), "");
      }
      moeplan_graph_destroy(graph);
    }
  }
}

TEST_F(RoutedWaysGpu, Float32OutputIsTheHosts) {
  MOEP_NEEDS_SM90();
  for (uint32_t rows : {1u, 8u, 20u}) {
    const moeplan_options on_host = Options().Float32();
    harness_run run = harness_rows(5, rows);
    run.options = &on_host;
    const Result expected = host_->Run(run);
    for (moeplan_options options : Recipes(rows)) {
      options.y_type = moeplan_dtype_f32;
      run.options = &options;
      Expect(run, GpuWay::kTap, expected.get());
      Expect(run, GpuWay::kGraph, expected.get());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, RoutingFromOutsideIsReadAtReplay) {
  MOEP_NEEDS_SM90();
  const std::vector<int32_t> ids = {3, -1, 19, 7,  7, 20, 0,  1,  2,  3, 4, 5,
                                    5, 5,  5,  -9, 5, 5,  -1, -1, -1, 9, 0, 8};
  std::vector<float> weights(ids.size());
  for (size_t i = 0; i < ids.size(); i++) {
    weights[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  }
  harness_run run = harness_rows(0, 4);
  run.topk_ids = ids.data();
  run.topk_weights = weights.data();
  const Result expected = host_->Run(run);
  for (const moeplan_options& options : Recipes(4)) {
    run.options = &options;
    for (GpuWay way : kWays) {
      Expect(run, way, expected.get());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(RoutedWaysGpu, StridesAreHonoured) {
  constexpr uint32_t kRows = 11, kWide = kHidden + 24;
  for (const moeplan_options& options : Recipes(kRows)) {
    harness_run wanted = harness_rows(0, kRows);
    wanted.options = &options;
    GpuRun run(*gpu_, wanted, false);
    std::vector<uint16_t> x(kRows * kWide, 0xFFFF), y(kRows * kWide);
    for (uint32_t r = 0; r < kRows; r++) {
      std::memcpy(&x[r * kWide], host_->get()->x + r * kHidden, kHidden * 2);
    }
    DeviceMemory x_memory(false, x.size() * 2, x.data());
    DeviceMemory y_memory(false, y.size() * 2);
    y_memory.fill(0xEE);
    moeplan_binding binding = run.binding();
    binding.x = x_memory.as();
    binding.y = y_memory.as();
    binding.x_stride = kWide;
    binding.y_stride = kWide;
    ASSERT_MOEPLAN(moeplan_enqueue(run.plan(), &binding, gpu_->stream()));
    ASSERT_CUDA(cudaStreamSynchronize(gpu_->stream()));
    y_memory.read(y.data(), y.size() * 2);
    for (uint32_t r = 0; r < kRows; r++) {
      ASSERT_EQ(std::memcmp(&y[r * kWide], gpu_->Alone(r)->y, kHidden * 2), 0)
          << "row " << r;
      for (uint32_t i = kHidden; i < kWide; i++) {
        ASSERT_EQ(y[r * kWide + i], 0xEEEE) << "row " << r << ", column " << i;
      }
    }
  }
}

// The ring goes round several times; its cursor starts anywhere.
TEST_F(RoutedWaysGpu, TraceRingHoldsTheLastRows) {
  constexpr uint32_t kRows = 10, kCapacity = 13;
  constexpr uint64_t kStart = (uint64_t{1} << 33) + 5;
  for (const moeplan_options& options : Recipes(kRows)) {
    for (uint32_t live : {3u, 9u, 10u}) {
      harness_run wanted = harness_rows(0, kRows);
      wanted.options = &options;
      wanted.live_rows = static_cast<int32_t>(live);
      GpuRun run(*gpu_, wanted, false);
      DeviceMemory ids(false, kCapacity * kTopk * 4), cursor(false, 8, &kStart);
      DeviceMemory weights(false, kCapacity * kTopk * 4);
      ids.fill(0xAB);
      moeplan_binding binding = run.binding();
      binding.trace = {ids.as<int32_t>(), weights.as<float>(),
                       cursor.as<uint64_t>(), kCapacity};
      for (int i = 0; i < 7; i++) {
        ASSERT_MOEPLAN(moeplan_enqueue(run.plan(), &binding, gpu_->stream()));
      }
      ASSERT_CUDA(cudaStreamSynchronize(gpu_->stream()));
      uint64_t end = 0;
      std::vector<int32_t> ring(kCapacity * kTopk);
      std::vector<float> ring_weights(kCapacity * kTopk);
      cursor.read(&end, sizeof(end));
      ids.read(ring.data(), ring.size() * 4);
      weights.read(ring_weights.data(), ring_weights.size() * 4);
      ASSERT_EQ(end, kStart + 7 * live) << "recipe " << options.recipe;
      for (uint64_t n = end - kCapacity; n < end; n++) {
        const harness_result* alone =
            gpu_->Alone(static_cast<uint32_t>((n - kStart) % live));
        const size_t at = n % kCapacity * kTopk;
        ASSERT_EQ(std::memcmp(&ring[at], alone->ids, kTopk * 4), 0)
            << "row " << n - kStart << ", recipe " << options.recipe;
        ASSERT_EQ(std::memcmp(&ring_weights[at], alone->weights, kTopk * 4), 0)
            << "row " << n - kStart << ", recipe " << options.recipe;
      }
    }
  }
}

/* ---- replays ---- */

// Beside another plan's replays and memory traffic on a second stream.
TEST_F(RoutedWaysGpu, ThousandReplaysBesideOtherWorkGiveTheSameBits) {
  constexpr uint32_t kReplays = 1000;
  cudaStream_t beside = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  DeviceMemory noise(false, size_t{64} << 20);
  for (uint32_t rows : {1u, 8u, 20u}) {
    const moeplan_options options = Options().NoGrouped();
    harness_run wanted = harness_rows(0, rows);
    wanted.options = &options;
    GpuRun run(*gpu_, wanted, false), other(*gpu_, harness_rows(30, 6), false);
    const moeplan_graph_t graph = Graph(run), other_graph = Graph(other);
    const size_t bytes = size_t{rows} * kHidden * 2;
    DeviceMemory history(false, kReplays * bytes);
    void* y = run.binding().y;
    for (uint32_t i = 0; i < kReplays; i++) {
      ASSERT_CUDA(cudaMemsetAsync(y, 0xFF, bytes, gpu_->stream()));
      ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu_->stream()));
      ASSERT_CUDA(cudaMemcpyAsync(history.as<uint8_t>() + i * bytes, y, bytes,
                                  cudaMemcpyDeviceToDevice, gpu_->stream()));
      ASSERT_MOEPLAN(moeplan_graph_replay(other_graph, beside));
      if (i % 16 == 0) {
        ASSERT_CUDA(cudaMemsetAsync(noise.as(), static_cast<int>(i),
                                    noise.bytes(), beside));
      }
    }
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<uint8_t> all(history.bytes());
    history.read(all.data(), all.size());
    for (uint32_t i = 0; i < kReplays * rows; i++) {
      ASSERT_EQ(std::memcmp(&all[i * kHidden * 2], gpu_->Alone(i % rows)->y,
                            kHidden * 2),
                0)
          << "replay " << i / rows << ", row " << i % rows << " of " << rows;
    }
    moeplan_graph_destroy(graph);
    moeplan_graph_destroy(other_graph);
  }
  ASSERT_CUDA(cudaStreamDestroy(beside));
}

// No wait between plans that share a workspace: what starts early is ordered.
TEST_F(RoutedWaysGpu, PlansOverOneWorkspaceRunInOrder) {
  const moeplan_options options = Options().NoGrouped();
  harness_run wanted = harness_rows(0, 20);
  wanted.options = &options;
  GpuRun all(*gpu_, wanted, false), one(*gpu_, harness_rows(0, 1), false);
  GpuRun some(*gpu_, harness_rows(0, 5), false);
  moeplan_binding shared[2] = {one.binding(), some.binding()};
  for (moeplan_binding& binding : shared) {
    binding.workspace = all.binding().workspace;
    binding.workspace_bytes = all.binding().workspace_bytes;
  }
  for (int round = 0; round < 20; round++) {
    all.Reset();
    one.Reset();
    some.Reset();
    moeplan_binding binding = all.binding();
    binding.trace = {};
    for (int i = 0; i < 10; i++) {
      shared[0].trace = shared[1].trace = {};
      ASSERT_MOEPLAN(moeplan_enqueue(one.plan(), &shared[0], gpu_->stream()));
      ASSERT_MOEPLAN(moeplan_enqueue(all.plan(), &binding, gpu_->stream()));
      ASSERT_MOEPLAN(moeplan_enqueue(some.plan(), &shared[1], gpu_->stream()));
    }
    all.Launch(GpuWay::kEnqueue);
    ASSERT_EQ(Difference(all), "") << "round " << round;
    const Result first = one.Read(), five = some.Read();
    ASSERT_EQ(std::memcmp(first->y, gpu_->Alone(0)->y, kHidden * 2), 0);
    for (uint32_t r = 0; r < 5; r++) {
      ASSERT_EQ(std::memcmp(five->y + r * kHidden * 2, gpu_->Alone(r)->y,
                            kHidden * 2),
                0)
          << "round " << round << ", row " << r;
    }
  }
}

TEST_F(RoutedWaysGpu, GraphUpdateMovesXAndY) {
  for (uint32_t rows : {1u, 8u, 20u}) {
    for (const moeplan_options& options : Recipes(rows)) {
      harness_run here = harness_rows(0, rows), there = harness_rows(25, rows);
      here.options = there.options = &options;
      GpuRun from(*gpu_, here, false), to(*gpu_, there, false);
      const moeplan_graph_t graph = Graph(from);
      ASSERT_MOEPLAN(moeplan_graph_update(graph, &to.binding()));
      ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu_->stream()));
      ASSERT_EQ(Difference(to), "");
      ASSERT_EQ(from.Read()->traced, 0u) << "the old binding was written";
      ASSERT_MOEPLAN(moeplan_graph_update(graph, &from.binding()));
      ASSERT_MOEPLAN(moeplan_graph_replay(graph, gpu_->stream()));
      ASSERT_EQ(Difference(from), "");
      moeplan_graph_destroy(graph);
    }
  }
}

}  // namespace
