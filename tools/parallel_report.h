/* A parallel run as a table or as JSON, and whether its sums are right. */

#ifndef MOEPLAN_TOOLS_PARALLEL_REPORT_H_
#define MOEPLAN_TOOLS_PARALLEL_REPORT_H_

#include "tools/bench_machine.h"
#include "tools/parallel_rank.h"

/* Of one row count. */
struct tool_parallel_line {
  const struct moeplan_plan_info* info;
  struct tool_spread whole; /* the site on one GPU; no samples: not timed */
  struct tool_spread ranks[TOOL_PARALLEL_GRAPHS]; /* of the slowest rank */
  double relative_l2; /* of the sum against one GPU's y: the worst row's */
};

struct tool_parallel_report {
  const struct tool_parallel_run* run;
  const struct tool_machine* machine;
  const struct moeplan_config* parts; /* [ranks]: each rank's configuration */
  uint32_t ranks;
  int nccl; /* its version; 0: the host adds up */
  const struct tool_parallel_line* lines;
  size_t num_lines;
};

enum tool_status tool_parallel_table(const struct tool_parallel_report* report,
                                     struct tool_error* error);
enum tool_status tool_parallel_json(const struct tool_parallel_report* report,
                                    struct tool_error* error);

/* tool_failed unless every sum is the site's y within rounding: a relative L2
 * error of 2^-16 in a row. A chain of 128 steps of the tensor cores, the longest
 * that the contract has, drops less than 2^-23 of a partial sum at each step; a
 * chain split over ranks drops other bits. A missing expert is an error near 1. */
enum tool_status tool_parallel_verdict(
    const struct tool_parallel_report* report, struct tool_error* error);

#endif /* MOEPLAN_TOOLS_PARALLEL_REPORT_H_ */
