/* Times of a plan's nodes, one by one. */

#ifndef MOEPLAN_TOOLS_BENCH_NODES_H_
#define MOEPLAN_TOOLS_BENCH_NODES_H_

#include <moeplan.h>

#include "tools/session.h"

/* A line for each node: number, kernel, median microseconds. The caller frees the
 * text. */
enum tool_status tool_bench_nodes(const struct tool_session* session,
                                  moeplan_plan_t plan,
                                  const struct moeplan_binding* binding,
                                  void* stream, char** text_out);

#endif /* MOEPLAN_TOOLS_BENCH_NODES_H_ */
