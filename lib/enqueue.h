/* Stage 6: node + binding -> launch. The only place where an offset becomes an
 * address; nothing is decided here. */

#ifndef MOEPLAN_LIB_ENQUEUE_H_
#define MOEPLAN_LIB_ENQUEUE_H_

#include "lib/plan.h"

/* One node, ready to launch; `matmul` is the plan's, which outlives the call, or
 * NULL, and takes the place of `launch`. */
struct moep_call {
  const struct moeplan_planner* planner;
  const struct moep_matmul* matmul;
  moep_launch_fn launch;
  struct moep_launch how;
  union moep_args args;
};

/* Bind node `index` of the plan. `binding` is as moep_binding_read gives it;
 * `tap` is NULL outside tests. */
void moep_call_prepare(const struct moeplan_plan* plan, uint32_t index,
                       const struct moeplan_binding* binding,
                       const struct moep_tap* tap, struct moep_call* call_out);

enum moeplan_status moep_call_launch(const struct moeplan_hooks* hooks,
                                     const struct moep_call* call,
                                     cudaStream_t stream);

/* All nodes, in order. */
enum moeplan_status moep_enqueue_nodes(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       const struct moep_tap* tap,
                                       cudaStream_t stream);

#endif /* MOEPLAN_LIB_ENQUEUE_H_ */
