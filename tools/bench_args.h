/* The options that `moeplan bench` and `moeplan parallel` have. */

#ifndef MOEPLAN_TOOLS_BENCH_ARGS_H_
#define MOEPLAN_TOOLS_BENCH_ARGS_H_

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/bench_routing.h"
#include "tools/tool_error.h"

enum { TOOL_BENCH_MAX_SETS = 256, TOOL_BENCH_KEY = 0x200 };

enum tool_bench_key {
  TOOL_BENCH_HIDDEN = TOOL_BENCH_KEY,
  TOOL_BENCH_INTERMEDIATE,
  TOOL_BENCH_EXPERTS,
  TOOL_BENCH_TOPK,
  TOOL_BENCH_SHARED,
  TOOL_BENCH_ROUTING,
  TOOL_BENCH_SETS,
  TOOL_BENCH_SECONDS,
  TOOL_BENCH_PLOT,
  TOOL_BENCH_NUMERICS,
  TOOL_BENCH_NODES,
};

struct tool_bench_args {
  uint32_t hidden, intermediate, experts, topk, shared; /* 0: not given */
  enum tool_routing routing;
  uint32_t sets;    /* 0: by rule */
  double seconds;   /* of measuring, per row count; 0: by rule */
  const char* plot; /* a path; NULL: none */
  bool numerics;    /* the numerics table instead */
  bool nodes;       /* also the time of each node */
};

/* clang-format off */
#define TOOL_SIZES_OPTIONS                                                    \
  {"hidden", TOOL_BENCH_HIDDEN, "H", 0, "A site by its sizes", 0},            \
  {"intermediate", TOOL_BENCH_INTERMEDIATE, "I", 0,                           \
   "Width of one expert, or of a dense site", 0},                             \
  {"experts", TOOL_BENCH_EXPERTS, "E", 0, "Without it the site is dense", 0}, \
  {"top-k", TOOL_BENCH_TOPK, "K", 0, "Experts of a row", 0},                  \
  {"shared", TOOL_BENCH_SHARED, "W", 0,                                       \
   "Width of the shared expert (default: none)", 0},                          \
  {"routing", TOOL_BENCH_ROUTING, "HOW", 0,                                   \
   "router (default: the site's own), or by ids from outside: uniform, zipf, " \
   "same, distinct, live", 0}

#define TOOL_BENCH_OPTIONS                                                    \
  {"device", 'd', "DEVICE", 0, "cuda:N or host (default: cuda:0)", 0},        \
  {"rows", 'r', "N,...", 0, "Row counts (default: 1,2,4,8)", 0},              \
  TOOL_SIZES_OPTIONS,                                                         \
  {"sets", TOOL_BENCH_SETS, "N", 0,                                           \
   "Sets of x and ids in turn (default: as many as the weights want copies, " \
   "at least 24; host: 2)", 0},                                               \
  {"seconds", TOOL_BENCH_SECONDS, "S", 0,                                     \
   "Time to measure each row count for (default: 1; host: 0.2)", 0},          \
  {"plot", TOOL_BENCH_PLOT, "FILE", 0,                                        \
   "Draw time and floor over the rows (SVG)", 0},                             \
  {"nodes", TOOL_BENCH_NODES, 0, 0,                                           \
   "In the table, also the time of each node, kept apart from the others", 0},      \
  {"numerics", TOOL_BENCH_NUMERICS, 0, 0,                                     \
   "Times nothing: errors of the down projection of a fixed small site, by "  \
   "grouped and by single rows. Exit status 1: above 0.0040 against exact, "  \
   "or the two differ", 0}
/* clang-format on */

/* `text` as a whole number from 1 to `most`. */
enum tool_status tool_parse_number(const char* option, const char* text,
                                   uint32_t most, uint32_t* number_out,
                                   struct tool_error* error);

/* ARGP_ERR_UNKNOWN for a key that is none of them; else 0, with the status. */
error_t tool_bench_option(int key, const char* value,
                          struct tool_bench_args* args,
                          enum tool_status* status_out,
                          struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_ARGS_H_ */
