/* A benchmark as a table, as JSON, as a drawing. */

#ifndef MOEPLAN_TOOLS_BENCH_REPORT_H_
#define MOEPLAN_TOOLS_BENCH_REPORT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/bench_run.h"
#include "tools/tool_error.h"

enum { TOOL_REUSE_L2 = 3 }; /* weights come back after so many times the L2 */

struct tool_bench_report {
  const struct tool_bench_run* run;
  const struct tool_bench_result* results;
  size_t num_results;
};

/* Is TOOL_REUSE_L2 kept for this result? On the host always. */
bool tool_bench_reuse_is_far(const struct tool_bench_report* report,
                             const struct tool_bench_result* result);

/* The line of a site, without its end. */
void tool_bench_print_config(const struct moeplan_config* config,
                             enum tool_routing routing, FILE* out);

enum tool_status tool_bench_table(const struct tool_bench_report* report,
                                  struct tool_error* error);
enum tool_status tool_bench_json(const struct tool_bench_report* report,
                                 struct tool_error* error);
/* Into the file that --plot names. */
enum tool_status tool_bench_plot(const struct tool_bench_report* report,
                                 struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_REPORT_H_ */
