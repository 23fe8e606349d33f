#include "tests/gpu_site_run.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

extern "C" {
#include "lib/binding.h"
#include "lib/enqueue.h"
}

namespace moeplan_test {

namespace {

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

GpuRun::GpuRun(GpuSite& site, const harness_run& run, bool tap)
    : site_(site), run_(run), tap_(tap) {
  status_ = moeplan_plan_create(site.planner(), run.rows, run.options, &plan_);
  if (status_ != moeplan_status_success) return;
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  EXPECT_MOEPLAN(moeplan_plan_info(plan_, &info));
  AddRows();
  workspace_ = memory_.AddPoison(info.workspace_bytes, run.poison);
  if (tap_) AddTap();
  memory_.Upload();
  Bind(info.workspace_bytes);
}

GpuRun::~GpuRun() { moeplan_plan_destroy(plan_); }

uint32_t GpuRun::live() const {
  if (run_.live_rows == -1) return run_.rows;
  return moep_live_rows(&run_.live_rows, run_.rows);
}

// Everything that the size of the rows decides.
void GpuRun::AddRows() {
  const harness& h = site_.parts();
  const size_t hidden = h.config.hidden_size, elements = run_.rows * hidden;
  const size_t slots = size_t{run_.rows} * h.config.num_experts_per_tok;
  const uint16_t* from = h.x + run_.first_row * hidden;
  std::vector<uint16_t> x(from, from + elements);
  std::memset(x.data() + live() * hidden, run_.poison,
              (run_.rows - live()) * hidden * sizeof(x[0]));
  const bool f32 =
      run_.options != nullptr && run_.options->y_type == moeplan_dtype_f32;
  y_bytes_ = f32 ? 4 : 2;
  x_ = run_.in_place ? memory_.AddOutput(x.data(), elements * 2)
                     : memory_.AddConstant(x.data(), elements * 2);
  y_ = run_.in_place ? x_ : memory_.AddPoison(elements * y_bytes_, run_.poison);
  ids_ = memory_.AddPoison(slots * 4, run_.poison);
  weights_ = memory_.AddPoison(slots * 4, run_.poison);
  cursor_ = memory_.AddPoison(sizeof(uint64_t), 0);
  live_ = memory_.AddConstant(&run_.live_rows, sizeof(run_.live_rows));
  if (run_.topk_ids == nullptr) return;
  external_ids_ = memory_.AddConstant(run_.topk_ids, slots * 4);
  external_weights_ = memory_.AddConstant(run_.topk_weights, slots * 4);
}

void GpuRun::AddTap() {
  const moeplan_config& c = site_.parts().config;
  const size_t topk = c.num_experts_per_tok, hidden = c.hidden_size;
  const size_t width = c.shared_local_intermediate;
  const size_t elements[5] = {c.n_routed_experts,
                              topk * 2 * c.moe_intermediate_size, topk * hidden,
                              2 * width, width == 0 ? 0 : hidden};
  for (int i = 0; i < 5; i++) {
    tap_bytes_[i] = elements[i] * sizeof(float);
    taps_[i] = memory_.AddPoison(run_.rows * tap_bytes_[i], run_.poison);
  }
}

void GpuRun::Bind(size_t workspace_bytes) {
  binding_.site = site_.blob();
  binding_.host_site = site_.host_blob();
  binding_.x = memory_.device<void>(x_);
  binding_.y = memory_.device<void>(y_);
  binding_.workspace = memory_.device<void>(workspace_);
  binding_.workspace_bytes = workspace_bytes;
  binding_.trace = {memory_.device<int32_t>(ids_),
                    memory_.device<float>(weights_),
                    memory_.device<uint64_t>(cursor_), run_.rows};
  if (run_.live_rows != -1) binding_.live_rows = memory_.device<int32_t>(live_);
  if (run_.topk_ids == nullptr) return;
  binding_.topk_ids = memory_.device<int32_t>(external_ids_);
  binding_.topk_weights = memory_.device<float>(external_weights_);
}

void GpuRun::SetLiveRows(int32_t live) {
  run_.live_rows = live;
  memory_.Write(live_, &live, sizeof(live));
}

moeplan_status GpuRun::LaunchGraph() {
  moeplan_graph_t graph = nullptr;
  moeplan_status status = moeplan_graph_create(plan_, &binding_, &graph);
  if (status != moeplan_status_success) return status;
  status = moeplan_graph_replay(graph, site_.stream());
  if (status == moeplan_status_success && !run_.in_place) {
    // The second replay writes the same rows again.
    EXPECT_CUDA(cudaMemsetAsync(memory_.device<void>(cursor_), 0,
                                sizeof(uint64_t), site_.stream()));
    status = moeplan_graph_replay(graph, site_.stream());
  }
  EXPECT_CUDA(cudaStreamSynchronize(site_.stream()));
  moeplan_graph_destroy(graph);
  return status;
}

// Launch a graph of the caller's and destroy it.
void GpuRun::LaunchCallers(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  if (exec != nullptr) {
    EXPECT_CUDA(cudaGraphLaunch(exec, site_.stream()));
    EXPECT_CUDA(cudaStreamSynchronize(site_.stream()));
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
  }
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

moeplan_status GpuRun::LaunchChild() {
  cudaGraph_t parent = nullptr;
  cudaGraphNode_t child = nullptr;
  EXPECT_CUDA(cudaGraphCreate(&parent, 0));
  const moeplan_status status =
      moeplan_graph_add_child(plan_, &binding_, parent, nullptr, 0, &child);
  LaunchCallers(parent);
  return status;
}

moeplan_status GpuRun::LaunchCapture() {
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(
      cudaStreamBeginCapture(site_.stream(), cudaStreamCaptureModeThreadLocal));
  const moeplan_status status =
      moeplan_enqueue(plan_, &binding_, site_.stream());
  EXPECT_CUDA(cudaStreamEndCapture(site_.stream(), &graph));
  if (graph != nullptr) LaunchCallers(graph);
  return status;
}

moeplan_status GpuRun::LaunchTap() {
  moep_tap tap = {};
  float** const members[5] = {&tap.logits, &tap.expert_up, &tap.expert_down,
                              &tap.ffn_up, &tap.ffn_down};
  for (int i = 0; i < 5 && tap_; i++) {
    *members[i] = memory_.device<float>(taps_[i]);
  }
  moeplan_binding checked;
  const moeplan_status status = moep_binding_read(plan_, &binding_, &checked);
  if (status != moeplan_status_success) return status;
  return moep_enqueue_nodes(plan_, &checked, &tap, site_.stream());
}

void GpuRun::Launch(GpuWay way) {
  if (status_ != moeplan_status_success) return;
  switch (way) {
    case GpuWay::kEnqueue:
      status_ = moeplan_enqueue(plan_, &binding_, site_.stream());
      break;
    case GpuWay::kGraph:
      status_ = LaunchGraph();
      break;
    case GpuWay::kChild:
      status_ = LaunchChild();
      break;
    case GpuWay::kCapture:
      status_ = LaunchCapture();
      break;
    case GpuWay::kTap:
      status_ = LaunchTap();
      break;
  }
}

Result GpuRun::Read() {
  Result result(new harness_result());
  result->status = status_;
  if (status_ != moeplan_status_success) return result;
  EXPECT_CUDA(cudaDeviceSynchronize());
  memory_.Download();
  const moeplan_config& c = site_.parts().config;
  const auto copy = [&](size_t piece, size_t bytes) {
    return std::memcpy(allocate(bytes), memory_.host(piece), bytes);
  };
  const size_t slots = size_t{run_.rows} * c.num_experts_per_tok;
  result->rows = run_.rows;
  result->y_bytes = y_bytes_;
  result->y = static_cast<uint8_t*>(
      copy(y_, size_t{run_.rows} * c.hidden_size * y_bytes_));
  result->ids = static_cast<int32_t*>(copy(ids_, slots * 4));
  result->weights = static_cast<float*>(copy(weights_, slots * 4));
  std::memcpy(&result->traced, memory_.host(cursor_), sizeof(uint64_t));
  result->guards_intact = memory_.Intact();
  float** const members[5] = {&result->tap.logits, &result->tap.expert_up,
                              &result->tap.expert_down, &result->tap.ffn_up,
                              &result->tap.ffn_down};
  for (int i = 0; i < 5 && tap_; i++) {
    result->tap_bytes[i] = tap_bytes_[i];
    *members[i] =
        static_cast<float*>(copy(taps_[i], run_.rows * tap_bytes_[i]));
  }
  return result;
}

}  // namespace moeplan_test
