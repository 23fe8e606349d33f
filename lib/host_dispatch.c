#include "lib/host_dispatch.h"

/* Ids from outside, before anything runs: inside the graph paths they are
 * skipped when out of range, here they are reported. */
static enum moeplan_status check_external(
    const struct moeplan_plan* plan, const struct moeplan_binding* binding) {
  if (binding->topk_ids == NULL) return moeplan_status_success;
  const struct moep_dims* dims = &plan->planner->dims;
  const uint32_t live = moep_live_rows(binding->live_rows, plan->rows);
  for (uint32_t slot = 0; slot < live * dims->topk; slot++) {
    if (binding->topk_ids[slot] < (int32_t)dims->experts) continue;
    return MOEP_REFUSE(&plan->planner->hooks, invalid_argument,
                       "cannot dispatch expert %d of slot %u: the site has %u "
                       "experts",
                       binding->topk_ids[slot], slot, dims->experts);
  }
  return moeplan_status_success;
}

/* One launch per expert of this rank that has slots. */
static enum moeplan_status launch_experts(const struct moeplan_plan* plan,
                                          struct moep_call* call,
                                          cudaStream_t stream) {
  struct moep_grouped_args* args = &call->args.grouped_up;
  for (uint32_t e = 0; e < plan->planner->dims.experts; e++) {
    const uint32_t slots =
        args->expert_offsets[e + 1] - args->expert_offsets[e];
    if (slots == 0 || args->site->experts[e].gate.weight == NULL) continue;
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
  MOEP_TRY(check_external(plan, binding));
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
