/* The command line. */

#ifndef MOEPLAN_TOOLS_ARGS_H_
#define MOEPLAN_TOOLS_ARGS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench_args.h"
#include "tools/tool_error.h"

enum { TOOL_MAX_ROW_COUNTS = 64, TOOL_MAX_ROWS = 1 << 20 };

enum tool_command {
  tool_command_run,
  tool_command_print,
  tool_command_inspect,
  tool_command_plan,
  tool_command_bench,
  tool_command_version,
  tool_command_help, /* printed already */
};

struct tool_args {
  enum tool_command command;
  const char* checkpoint;
  const char* config; /* a config.json; NULL: none named */
  const char* preset; /* plan, bench; NULL: config or sizes are set */
  const char* kind; /* plan, bench: "routed" or "dense"; NULL: what there is */
  const char* site; /* NULL: all */
  uint32_t rows[TOOL_MAX_ROW_COUNTS];
  size_t num_rows;    /* 0: the command's default */
  const char* device; /* "host" or "cuda:N"; plan: "plan:NAME" too */
  bool json;
  bool verbose;
  bool route_trace; /* run: MOEPLAN_ROUTE_TRACE=1 */
  struct tool_bench_args bench;
};

enum tool_status tool_args_parse(int argc, char** argv,
                                 struct tool_args* args_out,
                                 struct tool_error* error);

#endif /* MOEPLAN_TOOLS_ARGS_H_ */
