/* Routing of a node's rows, shared by the host kernels that route. */

#ifndef MOEPLAN_KERNELS_HOST_ROUTE_F32_HOST_H_
#define MOEPLAN_KERNELS_HOST_ROUTE_F32_HOST_H_

#include "kernels/args.h"

/* ids and weights of every row of the node, and its trace rows; the trace
 * cursor stays. */
void moep_host_route(const struct moep_route_args* args);

/* Move the trace cursor past the node's live rows. */
void moep_host_trace_advance(uint64_t* cursor, const struct moep_rows* rows);

#endif /* MOEPLAN_KERNELS_HOST_ROUTE_F32_HOST_H_ */
