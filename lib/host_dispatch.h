/* Stage 6: the debug path that reads the routing back and launches each local
 * expert by itself. Eager only. */

#ifndef MOEPLAN_LIB_HOST_DISPATCH_H_
#define MOEPLAN_LIB_HOST_DISPATCH_H_

#include "lib/enqueue.h"

/* Run a plan whose host_dispatch lever is set. Ids below 0 are skipped, an id
 * of n_routed_experts or more is invalid_argument, remote experts are skipped. */
enum moeplan_status moep_host_dispatch(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       const struct moep_tap* tap,
                                       cudaStream_t stream);

#endif /* MOEPLAN_LIB_HOST_DISPATCH_H_ */
