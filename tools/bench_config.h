/* The site that bench and parallel make: by preset, config.json or sizes. */

#ifndef MOEPLAN_TOOLS_BENCH_CONFIG_H_
#define MOEPLAN_TOOLS_BENCH_CONFIG_H_

#include <moeplan.h>

#include "tools/args.h"
#include "tools/tool_error.h"

enum tool_status tool_bench_config(const struct tool_args* args,
                                   struct moeplan_config* config,
                                   struct tool_error* error);

/* tool_usage unless the site has a router, and enough experts for so many rows. */
enum tool_status tool_bench_check_routing(const struct tool_args* args,
                                          const struct moeplan_config* config,
                                          uint32_t max_rows,
                                          struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_CONFIG_H_ */
