/* moeplan print: plans and workspaces as text. */

#ifndef MOEPLAN_TOOLS_PRINT_H_
#define MOEPLAN_TOOLS_PRINT_H_

#include "tools/args.h"
#include "tools/tool_error.h"

enum tool_status tool_print(const struct tool_args* args,
                            struct tool_error* error);

#endif /* MOEPLAN_TOOLS_PRINT_H_ */
