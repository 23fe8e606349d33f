/* Stage 7: a bound plan as a CUDA graph. */

#ifndef MOEPLAN_LIB_CAPTURE_H_
#define MOEPLAN_LIB_CAPTURE_H_

#include "lib/plan.h"

/* Refuse what cannot run as a graph, then check and copy the binding. */
enum moeplan_status moep_capture_check(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       struct moeplan_binding* binding_out);

/* Capture the plan on the planner's own stream, leaving any other capture of
 * this thread alone. `binding` is as moep_capture_check gives it; the caller
 * owns the graph. CUDA devices only. */
enum moeplan_status moep_capture(const struct moeplan_plan* plan,
                                 const struct moeplan_binding* binding,
                                 cudaGraph_t* graph_out);

#endif /* MOEPLAN_LIB_CAPTURE_H_ */
