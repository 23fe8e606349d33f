/* One row count of a benchmark: a plan, a graph for each set of x and ids, and
 * the time of their replays. */

#ifndef MOEPLAN_TOOLS_BENCH_RUN_H_
#define MOEPLAN_TOOLS_BENCH_RUN_H_

#include <moeplan.h>
#include <stdbool.h>

#include "tools/args.h"
#include "tools/bench_clock.h"
#include "tools/bench_machine.h"
#include "tools/bench_site.h"
#include "tools/session.h"

/* What all row counts share. Set s has x + s * rows * H, its own ids, and the
 * weights of copy s % copies. */
struct tool_bench_run {
  const struct tool_args* args;
  const struct moeplan_config* config;
  const struct tool_machine* machine;
  struct tool_session* session;
  struct tool_memory* memory;
  struct tool_bench_site site;
  uint32_t max_rows;
  uint32_t sets;
  double seconds;
  struct moeplan_binding binding; /* y, workspace, a trace ring if routed */
  char* x;                        /* [sets, max_rows, H] bf16 */
  char* ids;                      /* [sets, max_rows, k] int32 */
  char* weights;                  /* [sets, max_rows, k] float32 */
  int32_t* host_ids;              /* [sets, max_rows, k] */
  float* host_weights;
  uint16_t* host_y; /* [max_rows, H] */
};

enum { TOOL_LEVER_BYTES = 512 };

struct tool_bench_result {
  struct moeplan_plan_info info;
  char levers[TOOL_LEVER_BYTES]; /* "no_pdl 1, tile n32"; "": all at default */
  double experts; /* distinct ones that a replay hits; mean over the sets */
  uint32_t experts_min, experts_max;
  /* In TIERED, routed by the site: rows of all sets, and those whose experts the
   * INVARIANT plan would not choose. */
  uint64_t compared_rows, changed_rows;
  double bytes;         /* that a replay must read or write; mean */
  double floor_seconds; /* these at the machine's streaming rate */
  double reuse_bytes;   /* least weight bytes between two reads of one copy */
  struct tool_spread time; /* of one replay; samples are batches */
  uint32_t batch;          /* replays of a batch */
  struct tool_spread host; /* of one call of moeplan_graph_replay; CUDA */
  char* nodes;             /* with --nodes: a line each; the caller frees it */
};

/* Bytes of weights that a replay reads when it hits this many experts, and with
 * ids from outside no router. */
double tool_bench_weight_bytes(const struct moeplan_config* config,
                               enum tool_routing routing, double experts);

enum tool_status tool_bench_rows(struct tool_bench_run* run, uint32_t rows,
                                 struct tool_bench_result* result_out);

#endif /* MOEPLAN_TOOLS_BENCH_RUN_H_ */
