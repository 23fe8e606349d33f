/* moeplan plan: plans, workspaces and predicted floors of a model, without its
 * weights and without the device. */

#ifndef MOEPLAN_TOOLS_PLAN_H_
#define MOEPLAN_TOOLS_PLAN_H_

#include "tools/args.h"
#include "tools/tool_error.h"

/* Prints everything before it says that a plan was refused. */
enum tool_status tool_plan(const struct tool_args* args,
                           struct tool_error* error);

#endif /* MOEPLAN_TOOLS_PLAN_H_ */
