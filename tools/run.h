/* moeplan run: every site at every row count, replayed, compared, timed. */

#ifndef MOEPLAN_TOOLS_RUN_H_
#define MOEPLAN_TOOLS_RUN_H_

#include "tools/args.h"
#include "tools/tool_error.h"

/* Prints the table before it says that a result is wrong. */
enum tool_status tool_run(const struct tool_args* args,
                          struct tool_error* error);

#endif /* MOEPLAN_TOOLS_RUN_H_ */
