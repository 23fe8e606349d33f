/* Where each row went: the ids and weights of the library's trace ring, in slot
 * order, kept per result and printed. */

#ifndef MOEPLAN_TOOLS_ROUTE_TRACE_H_
#define MOEPLAN_TOOLS_ROUTE_TRACE_H_

#include <moeplan.h>
#include <stdio.h>

#include "tools/device_memory.h"
#include "tools/tool_error.h"

/* Start from {0}. */
struct tool_route_trace {
  uint32_t k;
  uint64_t rows;
  int32_t* ids;   /* [rows, k] */
  float* weights; /* [rows, k] */
};

/* Append the first `live` rows of the ring. */
enum tool_status tool_route_trace_add(struct tool_route_trace* trace,
                                      const struct tool_memory* memory,
                                      const struct moeplan_trace_ring* ring,
                                      uint32_t live, uint32_t k,
                                      struct tool_error* error);
void tool_route_trace_free(struct tool_route_trace* trace);

/* A line a row: "route SITE rows N row R: id:weight id:weight ...". */
void tool_route_trace_print(const struct tool_route_trace* trace,
                            const char* site, uint32_t plan_rows, FILE* out);

/* [{"ids": [...], "weights": [...]}, ...]; NULL for no rows. */
struct json_t;
struct json_t* tool_route_trace_json(const struct tool_route_trace* trace);

#endif /* MOEPLAN_TOOLS_ROUTE_TRACE_H_ */
