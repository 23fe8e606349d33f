/* One test in a process of its own: the first launch of the kernels that this
 * process ever sees is in a capture. A kernel that the driver loads lazily would
 * break it, so the planner has to have loaded all. */

#include <gtest/gtest.h>

#include "tests/gpu_support.h"

TEST(FirstCapture, OfKernelsNeverLaunchedBeforeWorks) {
  MOEP_NEEDS_SM90();
  const dense_data data({2560, 2208, 0, MOEPLAN_NO_SWIGLU_LIMIT, -20}, 9, 3);
  DenseSite gpu(data, "cuda:0", moeplan_dtype_bf16);
  ASSERT_NE(gpu.planner(), nullptr);
  const moeplan_options options = gpu.options();
  moeplan_plan_t plan = nullptr;
  moeplan_graph_t graph = nullptr;
  ASSERT_MOEPLAN(moeplan_plan_create(gpu.planner(), 9, &options, &plan));
  ASSERT_MOEPLAN(moeplan_graph_create(plan, &gpu.binding(), &graph));
  moeplan_plan_destroy(plan);

  gpu.poison();
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_MOEPLAN(moeplan_graph_replay(graph, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));

  DenseSite host(data, "host", moeplan_dtype_bf16);
  host.run(9);
  EXPECT_EQ(dense_difference(gpu.y(), host.y(), gpu.y_row_bytes(), 9), "");
  moeplan_graph_destroy(graph);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}
