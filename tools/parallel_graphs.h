/* The graphs of one rank and one row count: for each set the plan with the
 * addition of the ranks' outputs after it, the plan alone, the addition alone. On
 * the host device a plan is called directly. */

#ifndef MOEPLAN_TOOLS_PARALLEL_GRAPHS_H_
#define MOEPLAN_TOOLS_PARALLEL_GRAPHS_H_

#include "tools/parallel_rank.h"

struct tool_parallel_graphs {
  struct tool_parallel_rank* rank;
  uint32_t sets;
  struct tool_parallel_set {
    moeplan_plan_t plan;
    struct moeplan_binding binding;
    cudaGraphExec_t graphs[TOOL_PARALLEL_GRAPHS]; /* NULL: there is none */
  } all[TOOL_BENCH_MAX_SETS];
};

/* An addition outside a capture: whatever NCCL sets up at its first. */
enum tool_status tool_parallel_graphs_connect(
    const struct tool_parallel_graphs* graphs);

/* Capture the next set. */
enum tool_status tool_parallel_graphs_add(struct tool_parallel_graphs* graphs,
                                          moeplan_plan_t plan,
                                          const struct moeplan_binding* binding,
                                          uint32_t rows);

/* Without ranks to add, `both` is the plan. */
enum tool_status tool_parallel_graphs_replay(
    const struct tool_parallel_graphs* graphs, enum tool_parallel_graph graph,
    uint32_t set);

/* One replay, from batches over all sets that every rank starts together. All
 * ranks call it. No samples where nothing is timed or there is no such graph. */
enum tool_status tool_parallel_graphs_time(
    const struct tool_parallel_graphs* graphs, enum tool_parallel_graph graph,
    struct tool_spread* spread_out);

void tool_parallel_graphs_destroy(struct tool_parallel_graphs* graphs);

#endif /* MOEPLAN_TOOLS_PARALLEL_GRAPHS_H_ */
