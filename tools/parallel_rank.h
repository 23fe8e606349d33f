/* One rank of `moeplan parallel`: its part of the site on a device of its own,
 * graphs of each plan with and without the addition, what they computed and how
 * long they took. */

#ifndef MOEPLAN_TOOLS_PARALLEL_RANK_H_
#define MOEPLAN_TOOLS_PARALLEL_RANK_H_

#include <moeplan.h>

#include "tools/args.h"
#include "tools/bench_clock.h"
#include "tools/bench_site.h"
#include "tools/device_memory.h"
#include "tools/nccl.h"
#include "tools/parallel_gate.h"
#include "tools/ranks.h"
#include "tools/session.h"

/* What the ranks share. */
struct tool_parallel_run {
  const struct tool_args* args;
  const struct moeplan_config* config; /* the whole site's */
  const struct tool_nccl* nccl;        /* NULL: outputs are not added up */
  struct tool_gate* gate;
  uint32_t max_rows, sets, copies;
  double seconds; /* to measure each graph for; 0: nothing is timed */
};

enum tool_parallel_graph {
  tool_parallel_both,     /* the plan, then the addition */
  tool_parallel_plan,     /* the plan alone */
  tool_parallel_addition, /* the addition alone */
  TOOL_PARALLEL_GRAPHS,
};

/* Of one row count. */
struct tool_parallel_result {
  struct moeplan_plan_info info;
  float* y;                                      /* [sets, rows, H] */
  struct tool_spread time[TOOL_PARALLEL_GRAPHS]; /* of one replay */
};

struct tool_parallel_rank {
  const struct tool_parallel_run* run;
  struct tool_rank rank;
  char device[16];
  enum tool_status status; /* what tool_parallel_rank_run came to */
  struct tool_error error;
  struct tool_parallel_result results[TOOL_MAX_ROW_COUNTS];

  struct tool_args args;        /* with the rank's device */
  struct moeplan_config config; /* of its part */
  struct tool_memory memory;
  struct tool_session session;
  struct tool_bench_site site;
  struct moeplan_binding binding; /* y and the workspace */
  char* x;                        /* [sets, max_rows, H] bf16 */
  char* ids;                      /* [sets, max_rows, k] int32 */
  char* weights;                  /* [sets, max_rows, k] float32 */
};

/* Open, run every row count, close; keeps results, status and error. The ranks of
 * one gate run at the same time. */
void tool_parallel_rank_run(struct tool_parallel_rank* rank);

/* The results' memory. */
void tool_parallel_rank_free(struct tool_parallel_rank* rank);

#endif /* MOEPLAN_TOOLS_PARALLEL_RANK_H_ */
