#define _GNU_SOURCE

#include "tools/route_trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum tool_status tool_route_trace_add(struct tool_route_trace* trace,
                                      const struct tool_memory* memory,
                                      const struct moeplan_trace_ring* ring,
                                      uint32_t live, uint32_t k,
                                      struct tool_error* error) {
  const size_t have = (size_t)trace->rows * k;
  const size_t more = (size_t)live * k;
  int32_t* ids = reallocarray(trace->ids, have + more, sizeof(*ids));
  if (ids != NULL) trace->ids = ids;
  float* weights = reallocarray(trace->weights, have + more, sizeof(*weights));
  if (weights != NULL) trace->weights = weights;
  if (ids == NULL || weights == NULL) {
    return tool_fail(error, "cannot trace %" PRIu64 " rows: out of host memory",
                     trace->rows + live);
  }
  enum tool_status status = tool_memory_download(memory, ids + have, ring->ids,
                                                 more * sizeof(*ids), error);
  if (status == tool_ok) {
    status = tool_memory_download(memory, weights + have, ring->weights,
                                  more * sizeof(*weights), error);
  }
  if (status != tool_ok) return status;
  trace->k = k;
  trace->rows += live;
  return tool_ok;
}

void tool_route_trace_free(struct tool_route_trace* trace) {
  free(trace->ids);
  free(trace->weights);
  *trace = (struct tool_route_trace){.rows = 0};
}

void tool_route_trace_print(const struct tool_route_trace* trace,
                            const char* site, uint32_t plan_rows, FILE* out) {
  for (uint64_t row = 0; row < trace->rows; row++) {
    fprintf(out, "route %s rows %" PRIu32 " row %" PRIu64 ":", site, plan_rows,
            row);
    for (size_t j = 0; j < trace->k; j++) {
      const size_t at = (size_t)row * trace->k + j;
      fprintf(out, " %" PRId32 ":%.9g", trace->ids[at],
              (double)trace->weights[at]);
    }
    fputc('\n', out);
  }
}

static json_t* row_json(const struct tool_route_trace* trace, uint64_t row) {
  json_t* ids = json_array();
  json_t* weights = json_array();
  for (size_t j = 0; j < trace->k; j++) {
    const size_t at = (size_t)row * trace->k + j;
    const double weight = (double)trace->weights[at];
    json_array_append_new(ids, json_integer(trace->ids[at]));
    json_array_append_new(weights,
                          isfinite(weight) ? json_real(weight) : json_null());
  }
  return json_pack("{s:o, s:o}", "ids", ids, "weights", weights);
}

json_t* tool_route_trace_json(const struct tool_route_trace* trace) {
  if (trace->rows == 0) return NULL;
  json_t* rows = json_array();
  for (uint64_t row = 0; row < trace->rows; row++) {
    json_array_append_new(rows, row_json(trace, row));
  }
  return rows;
}
