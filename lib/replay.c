/* Stage 7: own graphs. On CUDA an instantiated graph; on the host a list of
 * prepared calls. */

#include <string.h>

#include "lib/capture.h"
#include "lib/check.h"
#include "lib/enqueue.h"

struct moeplan_graph {
  struct moeplan_plan* plan; /* a copy, for updates */
  cudaGraphExec_t exec;      /* CUDA */
  struct moep_call* calls;   /* host: one per node */
};

static size_t plan_bytes(const struct moeplan_plan* plan) {
  return sizeof(*plan) + plan->node_count * sizeof(plan->nodes[0]);
}

/* LCOV_EXCL_START: CUDA graphs */
static enum moeplan_status instantiate(const struct moeplan_hooks* hooks,
                                       cudaGraph_t captured,
                                       cudaStream_t stream,
                                       cudaGraphExec_t* exec_out) {
  cudaGraphExec_t exec = NULL;
  MOEP_TRY_CUDA(hooks, cudaGraphInstantiate(&exec, captured, 0));
  const enum moeplan_status status =
      MOEP_CUDA(hooks, cudaGraphUpload(exec, stream));
  if (status != moeplan_status_success) {
    cudaGraphExecDestroy(exec);
    return status;
  }
  *exec_out = exec;
  return moeplan_status_success;
}

/* Capture and instantiate, or, with an exec, update it in place. */
static enum moeplan_status bind_cuda(struct moeplan_graph* graph,
                                     const struct moeplan_binding* binding) {
  const struct moeplan_hooks* hooks = &graph->plan->planner->hooks;
  cudaGraph_t captured = NULL;
  MOEP_TRY(moep_capture(graph->plan, binding, &captured));
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  enum moeplan_status status;
  if (graph->exec == NULL) {
    status = instantiate(hooks, captured, graph->plan->planner->stream,
                         &graph->exec);
  } else {
    cudaGraphExecUpdateResultInfo result;
    status =
        MOEP_CUDA(hooks, cudaGraphExecUpdate(graph->exec, captured, &result));
  }
  cudaThreadExchangeStreamCaptureMode(&mode);
  cudaGraphDestroy(captured);
  return status;
}
/* LCOV_EXCL_STOP */

static enum moeplan_status bind(struct moeplan_graph* graph,
                                const struct moeplan_binding* binding) {
  const struct moeplan_plan* plan = graph->plan;
  if (!moep_device_is_host(&plan->planner->device)) {
    return bind_cuda(graph, binding);
  }
  for (uint32_t i = 0; i < plan->node_count; i++) {
    moep_call_prepare(plan, i, binding, NULL, &graph->calls[i]);
  }
  return moeplan_status_success;
}

/* A graph with room for what its device needs; nothing bound yet. */
static enum moeplan_status allocate_graph(const struct moeplan_plan* plan,
                                          struct moeplan_graph** graph_out) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  struct moeplan_graph* graph = moep_allocate(hooks, sizeof(*graph));
  if (graph == NULL) return moeplan_status_out_of_memory;
  *graph = (struct moeplan_graph){0};
  graph->plan = moep_allocate(hooks, plan_bytes(plan));
  if (graph->plan == NULL) goto release_graph;
  memcpy(graph->plan, plan, plan_bytes(plan));
  if (moep_device_is_host(&plan->planner->device)) {
    graph->calls =
        moep_allocate(hooks, plan->node_count * sizeof(graph->calls[0]));
    if (graph->calls == NULL) goto release_plan;
  }
  *graph_out = graph;
  return moeplan_status_success;

release_plan:
  moep_release(hooks, graph->plan);
release_graph:
  moep_release(hooks, graph);
  return moeplan_status_out_of_memory;
}

enum moeplan_status moeplan_graph_create(moeplan_plan_t plan,
                                         const struct moeplan_binding* binding,
                                         moeplan_graph_t* graph_out) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  if (graph_out == NULL) {
    return MOEP_REFUSE(&plan->planner->hooks, invalid_argument,
                       "cannot create a graph: graph_out must not be NULL");
  }
  struct moeplan_binding checked;
  MOEP_TRY(moep_capture_check(plan, binding, &checked));
  struct moeplan_graph* graph;
  MOEP_TRY(allocate_graph(plan, &graph));
  const enum moeplan_status status = bind(graph, &checked);
  if (status != moeplan_status_success) {
    moeplan_graph_destroy(graph);
    return status;
  }
  *graph_out = graph;
  return moeplan_status_success;
}

enum moeplan_status moeplan_graph_update(
    moeplan_graph_t graph, const struct moeplan_binding* binding) {
  if (graph == NULL) return moeplan_status_invalid_argument;
  struct moeplan_binding checked;
  MOEP_TRY(moep_capture_check(graph->plan, binding, &checked));
  return bind(graph, &checked);
}

enum moeplan_status moeplan_graph_replay(moeplan_graph_t graph,
                                         cudaStream_t stream) {
  if (graph == NULL) return moeplan_status_invalid_argument;
  const struct moeplan_hooks* hooks = &graph->plan->planner->hooks;
  if (graph->exec != NULL) {
    return MOEP_CUDA(hooks, cudaGraphLaunch(graph->exec, stream));
  }
  for (uint32_t i = 0; i < graph->plan->node_count; i++) {
    MOEP_TRY(moep_call_launch(hooks, &graph->calls[i], stream));
  }
  return moeplan_status_success;
}

void moeplan_graph_destroy(moeplan_graph_t graph) {
  if (graph == NULL) return;
  const struct moeplan_hooks* hooks = &graph->plan->planner->hooks;
  if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
  moep_release(hooks, graph->calls);
  moep_release(hooks, graph->plan);
  moep_release(hooks, graph);
}
