/* The results of a run, as a table or as one JSON document. */

#ifndef MOEPLAN_TOOLS_REPORT_H_
#define MOEPLAN_TOOLS_REPORT_H_

#include <moeplan.h>

#include "tools/args.h"
#include "tools/checkpoint.h"
#include "tools/route_trace.h"
#include "tools/tool_error.h"

/* One site at one row count. */
struct tool_result {
  const struct tool_site* site;
  struct moeplan_plan_info info;
  double seconds;       /* of one replay */
  bool has_error;       /* the file has a reference */
  double error;         /* relative L2 */
  uint64_t routed_rows; /* compared; 0 if the file has no ids */
  uint64_t rows_differing;
  bool repeated;                 /* more rows than the file has */
  struct tool_route_trace trace; /* of no rows without MOEPLAN_ROUTE_TRACE=1 */
};

struct tool_report {
  const struct tool_args* args;
  const struct tool_checkpoint* checkpoint;
  struct tool_result* results;
  size_t num_results;
};

/* Routing as expected and an error within the bar, where the file says so. */
bool tool_result_passes(const struct tool_result* result);

/* Write to stdout. Nothing is written before the whole text is made. */
enum tool_status tool_report_table(const struct tool_report* report,
                                   struct tool_error* error);
enum tool_status tool_report_json(const struct tool_report* report,
                                  struct tool_error* error);

/* tool_failed, and which results are to blame; else tool_ok. */
enum tool_status tool_report_verdict(const struct tool_report* report,
                                     struct tool_error* error);

#endif /* MOEPLAN_TOOLS_REPORT_H_ */
