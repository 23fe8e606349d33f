#include "lib/capture.h"

#include "lib/binding.h"
#include "lib/check.h"
#include "lib/enqueue.h"
#include "lib/host_dispatch.h"

enum moeplan_status moep_capture_check(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       struct moeplan_binding* binding_out) {
  if (plan->options.host_dispatch) {
    return MOEP_REFUSE(&plan->planner->hooks, invalid_state,
                       "cannot capture a plan with host_dispatch: it reads ids "
                       "back and runs by moeplan_enqueue only");
  }
  MOEP_TRY(moep_device_check_current(plan->planner));
  return moep_binding_read(plan, binding, binding_out);
}

/* LCOV_EXCL_START: captures on a GPU */
static enum moeplan_status capture_on_stream(
    const struct moeplan_plan* plan, const struct moeplan_binding* binding,
    cudaGraph_t* graph_out) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  const cudaStream_t stream = plan->planner->stream;
  MOEP_TRY_CUDA(hooks,
                cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  enum moeplan_status status = moep_enqueue_nodes(plan, binding, NULL, stream);
  cudaGraph_t graph = NULL;
  const enum moeplan_status ended =
      MOEP_CUDA(hooks, cudaStreamEndCapture(stream, &graph));
  if (status == moeplan_status_success) status = ended;
  if (status != moeplan_status_success) {
    if (graph != NULL) cudaGraphDestroy(graph);
    return status;
  }
  *graph_out = graph;
  return moeplan_status_success;
}

enum moeplan_status moep_capture(const struct moeplan_plan* plan,
                                 const struct moeplan_binding* binding,
                                 cudaGraph_t* graph_out) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  MOEP_TRY_CUDA(hooks, cudaThreadExchangeStreamCaptureMode(&mode));
  const enum moeplan_status status =
      capture_on_stream(plan, binding, graph_out);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return status;
}
/* LCOV_EXCL_STOP */

enum moeplan_status moeplan_enqueue(moeplan_plan_t plan,
                                    const struct moeplan_binding* binding,
                                    cudaStream_t stream) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  MOEP_TRY(moep_device_check_current(plan->planner));
  struct moeplan_binding checked;
  MOEP_TRY(moep_binding_read(plan, binding, &checked));
  if (plan->options.host_dispatch) {
    return moep_host_dispatch(plan, &checked, NULL, stream);
  }
  return moep_enqueue_nodes(plan, &checked, NULL, stream);
}

enum moeplan_status moeplan_graph_add_child(
    moeplan_plan_t plan, const struct moeplan_binding* binding,
    cudaGraph_t parent, const cudaGraphNode_t* dependencies,
    size_t num_dependencies, cudaGraphNode_t* node_out) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  if (parent == NULL || node_out == NULL ||
      (dependencies == NULL && num_dependencies != 0)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot add a child graph: parent, node_out and %zu "
                       "dependencies must not be NULL",
                       num_dependencies);
  }
  if (moep_device_is_host(&plan->planner->device)) {
    return MOEP_REFUSE(hooks, unsupported_device,
                       "cannot add a child graph on the host device: it has "
                       "no CUDA graphs");
  }
  /* LCOV_EXCL_START: captures on a GPU */
  struct moeplan_binding checked;
  MOEP_TRY(moep_capture_check(plan, binding, &checked));
  cudaGraph_t captured;
  MOEP_TRY(moep_capture(plan, &checked, &captured));
  cudaGraphNode_t node;
  const enum moeplan_status status =
      MOEP_CUDA(hooks, cudaGraphAddChildGraphNode(&node, parent, dependencies,
                                                  num_dependencies, captured));
  cudaGraphDestroy(captured); /* the parent has a clone */
  if (status == moeplan_status_success) *node_out = node;
  return status;
  /* LCOV_EXCL_STOP */
}
