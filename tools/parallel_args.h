/* The options that only `moeplan parallel` has. */

#ifndef MOEPLAN_TOOLS_PARALLEL_ARGS_H_
#define MOEPLAN_TOOLS_PARALLEL_ARGS_H_

#include <argp.h>
#include <stdint.h>

#include "tools/bench_args.h"
#include "tools/ranks.h"
#include "tools/tool_error.h"

enum tool_parallel_key {
  TOOL_PARALLEL_RANKS = 'n',
  TOOL_PARALLEL_SHARED = 0x300,
};

struct tool_parallel_args {
  uint32_t ranks; /* 0: 2 */
  enum tool_shared_on shared;
};

/* clang-format off */
#define TOOL_PARALLEL_OPTIONS                                                 \
  {"ranks", TOOL_PARALLEL_RANKS, "N", 0, "Ranks, one a GPU (default: 2)", 0}, \
  {"shared-expert", TOOL_PARALLEL_SHARED, "HOW", 0,                           \
   "split (default: a shard on each rank), first (all of it on rank 0), or "  \
   "whole (on every rank, which is refused)", 0},                             \
  {"rows", 'r', "N,...", 0, "Row counts (default: 1,4,8)", 0},                \
  {"sets", TOOL_BENCH_SETS, "N", 0,                                           \
   "Sets of x and ids in turn (default: 24; host: 2)", 0},                    \
  {"seconds", TOOL_BENCH_SECONDS, "S", 0,                                     \
   "Time to measure each of a row count's graphs for (default: 0.5)", 0}
/* clang-format on */

/* As tool_bench_option. */
error_t tool_parallel_option(int key, const char* value,
                             struct tool_parallel_args* args,
                             enum tool_status* status_out,
                             struct tool_error* error);

#endif /* MOEPLAN_TOOLS_PARALLEL_ARGS_H_ */
