/* moeplan bench: replays of a site's plans against the byte floor. */

#ifndef MOEPLAN_TOOLS_BENCH_H_
#define MOEPLAN_TOOLS_BENCH_H_

#include "tools/args.h"
#include "tools/tool_error.h"

enum tool_status tool_bench(const struct tool_args* args,
                            struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_H_ */
