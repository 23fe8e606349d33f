/* Dense sites on the GPU, by the public interface: the host's bits, whatever
 * the row count and the way of running. */

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu_support.h"

namespace {

constexpr uint32_t kRows = 100;

std::vector<uint32_t> row_counts() {
  std::vector<uint32_t> counts;
  for (uint32_t rows = 1; rows <= 17; rows++) counts.push_back(rows);
  counts.push_back(40);
  counts.push_back(kRows);
  return counts;
}

/* Every row of y from the host device. */
std::vector<uint8_t> host_rows(const dense_data& data, moeplan_dtype y_type) {
  DenseSite host(data, "host", y_type);
  host.run(data.rows);
  return host.y();
}

/* ---- every shape ---- */

class DenseGpuShape : public testing::TestWithParam<dense_shape> {
 protected:
  void test_row_counts(moeplan_dtype y_type) {
    const dense_data data(GetParam(), kRows, 11);
    const std::vector<uint8_t> expected = host_rows(data, y_type);
    DenseSite gpu(data, "cuda:0", y_type);
    for (uint32_t rows : row_counts()) {
      gpu.run(rows);
      ASSERT_EQ(dense_difference(gpu.y(), expected, gpu.y_row_bytes(), rows),
                "")
          << "plan of " << rows << " rows";
    }
  }
};

TEST_P(DenseGpuShape, EveryRowCountGivesTheHostsBits) {
  MOEP_NEEDS_SM90();
  test_row_counts(moeplan_dtype_bf16);
}

TEST_P(DenseGpuShape, EveryRowCountGivesTheHostsFloatBits) {
  MOEP_NEEDS_SM90();
  test_row_counts(moeplan_dtype_f32);
}

constexpr dense_shape kShapes[] = {
    {4096, 1536, 0, MOEPLAN_NO_SWIGLU_LIMIT, -22},
    {4096, 96, 0, 10.0f, 0},
    {2064, 208, 0, MOEPLAN_NO_SWIGLU_LIMIT, 0},
    {1040, 2880, 3000, 2.0f, -20},
    {16, 4112, 0, MOEPLAN_NO_SWIGLU_LIMIT, -12},
    {304, 16, 24, 7.0f, -18},
    {2112, 448, 456, 10.0f, -20},
    {64, 64, 0, MOEPLAN_NO_SWIGLU_LIMIT, 0},
};

INSTANTIATE_TEST_SUITE_P(, DenseGpuShape, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<dense_shape>& info) {
                           return std::to_string(info.param.hidden) + "x" +
                                  std::to_string(info.param.width);
                         });

/* ---- every way of running ---- */

class DenseGpu : public testing::Test {
 protected:
  static constexpr uint32_t kMost = 17;

  void SetUp() override {
    MOEP_NEEDS_SM90();
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    expected_ = host_rows(data_, moeplan_dtype_bf16);
    gpu_ = std::make_unique<DenseSite>(data_, "cuda:0", moeplan_dtype_bf16);
    ASSERT_NE(gpu_->planner(), nullptr);
  }

  void TearDown() override {
    for (moeplan_graph_t graph : graphs_) moeplan_graph_destroy(graph);
    for (moeplan_plan_t plan : plans_) moeplan_plan_destroy(plan);
    gpu_.reset();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  moeplan_plan_t plan(uint32_t rows) {
    const moeplan_options options = gpu_->options();
    moeplan_plan_t plan = nullptr;
    EXPECT_EQ(moeplan_plan_create(gpu_->planner(), rows, &options, &plan),
              moeplan_status_success);
    plans_.push_back(plan);
    return plan;
  }

  moeplan_graph_t graph(moeplan_plan_t plan) {
    moeplan_graph_t graph = nullptr;
    EXPECT_EQ(moeplan_graph_create(plan, &gpu_->binding(), &graph),
              moeplan_status_success);
    graphs_.push_back(graph);
    return graph;
  }

  /* Capture what `add` puts on the stream. */
  cudaGraph_t captured(cudaStreamCaptureMode mode,
                       const std::function<void()>& add) {
    cudaGraph_t result = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
    add();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &result), cudaSuccess);
    return result;
  }

  /* Launch a graph of the caller's and destroy it. */
  void launch(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    gpu_->poison();
    ASSERT_CUDA(cudaGraphLaunch(exec, stream_));
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }

  void replay(moeplan_graph_t graph) {
    gpu_->poison();
    ASSERT_MOEPLAN(moeplan_graph_replay(graph, stream_));
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
  }

  /* "" when y is right for `rows` rows. */
  std::string difference(uint32_t rows) const {
    return dense_difference(gpu_->y(), expected_, gpu_->y_row_bytes(), rows);
  }

  void test_create_while_capturing(cudaStreamCaptureMode mode);

  const dense_data data_{
      {2560, 2208, 0, MOEPLAN_NO_SWIGLU_LIMIT, -20}, kMost, 5};
  cudaStream_t stream_ = nullptr;
  std::vector<uint8_t> expected_;
  std::unique_ptr<DenseSite> gpu_;
  std::vector<moeplan_plan_t> plans_;
  std::vector<moeplan_graph_t> graphs_;
};

TEST_F(DenseGpu, EnqueueOnAStream) {
  for (uint32_t rows : {1u, 8u, 17u}) {
    gpu_->poison();
    ASSERT_MOEPLAN(moeplan_enqueue(plan(rows), &gpu_->binding(), stream_));
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    ASSERT_EQ(difference(rows), "") << rows << " rows";
  }
}

TEST_F(DenseGpu, EnqueueIntoTheCallersCapture) {
  for (uint32_t rows : {1u, 8u, 17u}) {
    const moeplan_plan_t wanted = plan(rows);
    launch(captured(cudaStreamCaptureModeGlobal, [&] {
      ASSERT_MOEPLAN(moeplan_enqueue(wanted, &gpu_->binding(), stream_));
    }));
    ASSERT_EQ(difference(rows), "") << rows << " rows";
  }
}

TEST_F(DenseGpu, OwnGraph) {
  for (uint32_t rows : {1u, 8u, 17u}) {
    replay(graph(plan(rows)));
    ASSERT_EQ(difference(rows), "") << rows << " rows";
  }
}

TEST_F(DenseGpu, ChildOfTheCallersGraph) {
  for (uint32_t rows : {1u, 8u, 17u}) {
    cudaGraph_t parent = nullptr;
    cudaGraphNode_t first = nullptr, child = nullptr;
    ASSERT_CUDA(cudaGraphCreate(&parent, 0));
    ASSERT_CUDA(cudaGraphAddEmptyNode(&first, parent, nullptr, 0));
    ASSERT_MOEPLAN(moeplan_graph_add_child(plan(rows), &gpu_->binding(), parent,
                                           &first, 1, &child));
    ASSERT_NE(child, nullptr);
    launch(parent);
    ASSERT_EQ(difference(rows), "") << rows << " rows";
  }
}

TEST_F(DenseGpu, ThousandReplaysGiveTheSameBits) {
  const moeplan_graph_t wanted = graph(plan(kMost));
  for (uint32_t i = 0; i < 1000; i++) {
    replay(wanted);
    ASSERT_EQ(difference(kMost), "") << "replay " << i;
  }
}

TEST_F(DenseGpu, ReplaysBackToBackGiveTheSameBits) {
  const moeplan_graph_t wanted = graph(plan(kMost));
  gpu_->poison();
  for (uint32_t i = 0; i < 1000; i++) {
    ASSERT_MOEPLAN(moeplan_graph_replay(wanted, stream_));
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  ASSERT_EQ(difference(kMost), "");
}

TEST_F(DenseGpu, GraphUpdateMovesY) {
  const moeplan_graph_t wanted = graph(plan(kMost));
  DeviceMemory other(false, gpu_->y().size());
  moeplan_binding binding = gpu_->binding();
  binding.y = other.as();
  ASSERT_MOEPLAN(moeplan_graph_update(wanted, &binding));
  other.fill(0xFF);
  replay(wanted);
  ASSERT_EQ(difference(0), "") << "the old y was written";
  std::vector<uint8_t> y(other.bytes());
  other.read(y.data(), y.size());
  ASSERT_EQ(dense_difference(y, expected_, gpu_->y_row_bytes(), kMost), "");
}

TEST_F(DenseGpu, RowsPastLiveRowsAreUntouched) {
  DeviceMemory live_rows(false, sizeof(int32_t));
  moeplan_binding binding = gpu_->binding();
  binding.live_rows = live_rows.as<int32_t>();
  for (int32_t live : {0, 1, 7, 8, 9, 16, 17, 18, 1 << 30, -1, INT32_MIN}) {
    const int32_t clamped = live < 0 ? 0 : live > 17 ? 17 : live;
    live_rows.write(&live, sizeof(live));
    gpu_->run(kMost, nullptr, &binding);
    ASSERT_EQ(difference(static_cast<uint32_t>(clamped)), "")
        << "live_rows " << live;
  }
}

TEST_F(DenseGpu, LiveRowsIsReadAtReplay) {
  DeviceMemory live_rows(false, sizeof(int32_t));
  moeplan_binding binding = gpu_->binding();
  binding.live_rows = live_rows.as<int32_t>();
  const moeplan_graph_t wanted = graph(plan(kMost));
  ASSERT_MOEPLAN(moeplan_graph_update(wanted, &binding));
  for (int32_t live : {17, 3, 11}) {
    live_rows.write(&live, sizeof(live));
    replay(wanted);
    ASSERT_EQ(difference(static_cast<uint32_t>(live)), "")
        << "live_rows " << live;
  }
}

TEST_F(DenseGpu, YMayBeX) {
  for (uint32_t rows : {1u, 8u, 17u}) {
    DeviceMemory both(false, data_.x.size() * 2, data_.x.data());
    moeplan_binding binding = gpu_->binding();
    binding.x = both.as();
    binding.y = both.as();
    gpu_->run(rows, nullptr, &binding);
    std::vector<uint8_t> y(rows * gpu_->y_row_bytes());
    both.read(y.data(), y.size());
    ASSERT_EQ(dense_difference(y, expected_, gpu_->y_row_bytes(), rows), "")
        << rows << " rows";
  }
}

TEST_F(DenseGpu, StridesAreHonoured) {
  const size_t hidden = data_.shape.hidden, wide = hidden + 24;
  std::vector<uint16_t> spread(kMost * wide, 0xFFFF);
  for (size_t r = 0; r < kMost; r++) {
    std::copy_n(&data_.x[r * hidden], hidden, &spread[r * wide]);
  }
  DeviceMemory x(false, spread.size() * 2, spread.data());
  DeviceMemory y(false, spread.size() * 2);
  y.fill(0xFF);
  moeplan_binding binding = gpu_->binding();
  binding.x = x.as();
  binding.x_stride = wide;
  binding.y = y.as();
  binding.y_stride = wide;
  gpu_->run(kMost, nullptr, &binding);
  std::vector<uint8_t> bytes(y.bytes());
  y.read(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); i++) {
    const size_t row = i / (2 * wide), at = i % (2 * wide);
    const uint8_t wanted =
        at < 2 * hidden ? expected_[row * 2 * hidden + at] : 0xFF;
    ASSERT_EQ(bytes[i], wanted) << "row " << row << ", byte " << at;
  }
}

TEST_F(DenseGpu, ProgrammaticLaunchChangesNoBit) {
  for (bool no_pdl : {false, true}) {
    for (uint32_t rows : {1u, 17u}) {
      moeplan_options options = gpu_->options();
      options.no_pdl = no_pdl;
      gpu_->run(rows, &options);
      ASSERT_EQ(difference(rows), "") << rows << " rows, no_pdl " << no_pdl;
    }
  }
}

TEST_F(DenseGpu, SmLimitChangesNoBit) {
  for (uint32_t sm_limit : {1u, 2u, 3u, 66u, 1000u}) {
    for (uint32_t rows : {1u, 9u, 17u}) {
      moeplan_options options = gpu_->options();
      options.sm_limit = sm_limit;
      gpu_->run(rows, &options);
      ASSERT_EQ(difference(rows), "") << rows << " rows, " << sm_limit;
    }
  }
}

/* A chain of plans without a wait between them: what the next one may start
 * early is still ordered. */
TEST_F(DenseGpu, PlansOverOneWorkspaceRunInOrder) {
  const moeplan_plan_t some = plan(5), all = plan(kMost);
  for (uint32_t i = 0; i < 100; i++) {
    gpu_->poison();
    for (uint32_t j = 0; j < 10; j++) {
      ASSERT_MOEPLAN(moeplan_enqueue(some, &gpu_->binding(), stream_));
      ASSERT_MOEPLAN(moeplan_enqueue(all, &gpu_->binding(), stream_));
    }
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    ASSERT_EQ(difference(kMost), "") << "round " << i;
  }
}

void DenseGpu::test_create_while_capturing(cudaStreamCaptureMode mode) {
  const moeplan_plan_t outer = plan(9);
  moeplan_planner_t planner = nullptr;
  moeplan_graph_t inner = nullptr;
  const cudaGraph_t caller = captured(mode, [&] {
    ASSERT_MOEPLAN(moeplan_enqueue(outer, &gpu_->binding(), stream_));
    ASSERT_MOEPLAN(
        moeplan_planner_create(&gpu_->config(), "cuda:0", nullptr, &planner));
    const moeplan_options options = gpu_->options();
    moeplan_plan_t own = nullptr;
    ASSERT_MOEPLAN(moeplan_plan_create(planner, kMost, &options, &own));
    ASSERT_MOEPLAN(moeplan_graph_create(own, &gpu_->binding(), &inner));
    moeplan_plan_destroy(own);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ASSERT_CUDA(cudaStreamIsCapturing(stream_, &status));
    ASSERT_EQ(status, cudaStreamCaptureStatusActive);
  });
  ASSERT_NE(caller, nullptr);
  size_t captured_nodes = 0;
  ASSERT_CUDA(cudaGraphGetNodes(caller, nullptr, &captured_nodes));
  EXPECT_EQ(captured_nodes, 2u) << "gate+up and down, nothing of the library's";
  launch(caller);
  EXPECT_EQ(difference(9), "") << "the caller's graph";
  replay(inner);
  EXPECT_EQ(difference(kMost), "") << "the graph made meanwhile";
  moeplan_graph_destroy(inner);
  moeplan_planner_destroy(planner);
}

TEST_F(DenseGpu, CreatingWorksWhileTheThreadCaptures) {
  test_create_while_capturing(cudaStreamCaptureModeThreadLocal);
}

TEST_F(DenseGpu, CreatingWorksWhileAllThreadsAreHeldToTheCapture) {
  test_create_while_capturing(cudaStreamCaptureModeGlobal);
}

}  // namespace
