#include "lib/host_dispatch.h"

#include <string.h>

#include "lib/check.h"

enum { SLOTS_AT_A_TIME = 1024 };

/* What is there once the stream's work is done: `rows` pieces of `bytes`, whose
 * beginnings are `pitch` apart. */
static enum moeplan_status read_back(const struct moeplan_plan* plan,
                                     cudaStream_t stream, const void* from,
                                     size_t pitch, size_t bytes, uint32_t rows,
                                     void* to) {
  const struct moeplan_planner* planner = plan->planner;
  if (moep_device_is_host(&planner->device)) {
    for (uint32_t r = 0; r < rows; r++) {
      memcpy((char*)to + r * bytes, (const char*)from + r * pitch, bytes);
    }
    return moeplan_status_success;
  }
  /* LCOV_EXCL_START: reads from a GPU */
  MOEP_TRY_CUDA(&planner->hooks,
                cudaMemcpy2DAsync(to, bytes, from, pitch, bytes, rows,
                                  cudaMemcpyDeviceToHost, stream));
  return MOEP_CUDA(&planner->hooks, cudaStreamSynchronize(stream));
  /* LCOV_EXCL_STOP */
}

static enum moeplan_status check_capture(const struct moeplan_plan* plan,
                                         cudaStream_t stream) {
  const struct moeplan_planner* planner = plan->planner;
  if (moep_device_is_host(&planner->device)) return moeplan_status_success;
  /* LCOV_EXCL_START: asks the CUDA runtime */
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MOEP_TRY_CUDA(&planner->hooks, cudaStreamIsCapturing(stream, &status));
  if (status == cudaStreamCaptureStatusNone) return moeplan_status_success;
  return MOEP_REFUSE(&planner->hooks, invalid_state,
                     "cannot enqueue a plan with host_dispatch into a capture: "
                     "it reads ids back");
  /* LCOV_EXCL_STOP */
}

/* All rows, as *live_out has them, or what live_rows says. */
static enum moeplan_status read_live_rows(const struct moeplan_plan* plan,
                                          const struct moeplan_binding* binding,
                                          cudaStream_t stream,
                                          uint32_t* live_out) {
  int32_t live = 0;
  if (binding->live_rows == NULL) return moeplan_status_success;
  MOEP_TRY(read_back(plan, stream, binding->live_rows, sizeof(live),
                     sizeof(live), 1, &live));
  *live_out = moep_live_rows(&live, plan->rows);
  return moeplan_status_success;
}

/* Ids from outside, before anything runs: inside the graph paths they are
 * skipped when out of range, here they are reported. */
static enum moeplan_status check_external(const struct moeplan_plan* plan,
                                          const struct moeplan_binding* binding,
                                          cudaStream_t stream) {
  if (binding->topk_ids == NULL) return moeplan_status_success;
  const struct moep_dims* dims = &plan->planner->dims;
  uint32_t live = plan->rows;
  MOEP_TRY(read_live_rows(plan, binding, stream, &live));
  const uint32_t slots = live * dims->topk;
  for (uint32_t first = 0; first < slots; first += SLOTS_AT_A_TIME) {
    const uint32_t next = first + SLOTS_AT_A_TIME;
    const uint32_t end = next < slots ? next : slots;
    int32_t ids[SLOTS_AT_A_TIME];
    MOEP_TRY(read_back(plan, stream, binding->topk_ids + first, sizeof(ids),
                       sizeof(*ids) * (end - first), 1, ids));
    for (uint32_t slot = first; slot < end; slot++) {
      const int32_t id = ids[slot - first];
      if (id < (int32_t)dims->experts) continue;
      return MOEP_REFUSE(&plan->planner->hooks, invalid_argument,
                         "cannot dispatch expert %d of slot %u: the site has "
                         "%u experts",
                         id, slot, dims->experts);
    }
  }
  return moeplan_status_success;
}

/* One launch per expert of this rank that has slots. */
static enum moeplan_status launch_experts(const struct moeplan_plan* plan,
                                          struct moep_call* call,
                                          cudaStream_t stream) {
  struct moep_grouped_args* args = &call->args.grouped_up;
  const uint32_t experts = plan->planner->dims.experts;
  uint32_t offsets[MOEP_MAX_EXPERTS + 1];
  const uint8_t* weights[MOEP_MAX_EXPERTS]; /* null: on another rank */
  MOEP_TRY(read_back(plan, stream, args->expert_offsets, sizeof(offsets),
                     sizeof(*offsets) * (experts + 1), 1, offsets));
  MOEP_TRY(read_back(plan, stream, &args->site->experts[0].gate.weight,
                     sizeof(struct moep_expert), sizeof(*weights), experts,
                     weights));
  for (uint32_t e = 0; e < experts; e++) {
    if (offsets[e] == offsets[e + 1] || weights[e] == NULL) continue;
    args->expert_begin = e;
    args->expert_count = 1;
    MOEP_TRY(moep_call_launch(&plan->planner->hooks, call, stream));
  }
  return moeplan_status_success;
}

enum moeplan_status moep_host_dispatch(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       const struct moep_tap* tap,
                                       cudaStream_t stream) {
  MOEP_TRY(check_capture(plan, stream));
  MOEP_TRY(check_external(plan, binding, stream));
  for (uint32_t i = 0; i < plan->node_count; i++) {
    const enum moep_op op = plan->nodes[i].step->op;
    struct moep_call call;
    moep_call_prepare(plan, i, binding, tap, &call);
    if (op == moep_op_grouped_up || op == moep_op_grouped_down) {
      MOEP_TRY(launch_experts(plan, &call, stream));
    } else {
      MOEP_TRY(moep_call_launch(&plan->planner->hooks, &call, stream));
    }
  }
  return moeplan_status_success;
}
