/* The command line. */

#ifndef MOEPLAN_TOOLS_ARGS_H_
#define MOEPLAN_TOOLS_ARGS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench_args.h"
#include "tools/parallel_args.h"
#include "tools/tool_error.h"

enum { TOOL_MAX_ROW_COUNTS = 64, TOOL_MAX_ROWS = 1 << 20 };

enum tool_command {
  tool_command_run,
  tool_command_print,
  tool_command_inspect,
  tool_command_plan,
  tool_command_bench,
  tool_command_parallel,
  tool_command_version,
  tool_command_help, /* printed already */
};

struct tool_args {
  enum tool_command command;
  const char* checkpoint;
  const char* config; /* a config.json; NULL: none named */
  const char* preset; /* NULL: config or sizes are set */
  const char* kind;   /* "routed" or "dense"; NULL: what there is */
  const char* site;   /* NULL: all */
  uint32_t rows[TOOL_MAX_ROW_COUNTS];
  size_t num_rows; /* 0: the command's default */
  /* "host" or "cuda:N"; plan: "plan:NAME" too; parallel: "host" or "cuda" */
  const char* device;
  bool json;
  bool verbose;
  bool route_trace;             /* run: MOEPLAN_ROUTE_TRACE=1 */
  struct tool_bench_args bench; /* of bench and parallel */
  struct tool_parallel_args parallel;
};

enum tool_status tool_args_parse(int argc, char** argv,
                                 struct tool_args* args_out,
                                 struct tool_error* error);

/* Values of options that several commands have (args_values.c). */
enum tool_status tool_parse_row_list(const char* text, struct tool_args* args,
                                     struct tool_error* error);
enum tool_status tool_parse_device(const char* text, struct tool_args* args,
                                   struct tool_error* error);
/* The library's name for a device to plan for. */
enum tool_status tool_parse_plan_device(const char* text,
                                        struct tool_args* args,
                                        struct tool_error* error);
enum tool_status tool_parse_kind(const char* text, struct tool_args* args,
                                 struct tool_error* error);

#endif /* MOEPLAN_TOOLS_ARGS_H_ */
