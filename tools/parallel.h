/* moeplan parallel: a site spread over ranks, one a GPU, against the whole site on
 * one. */

#ifndef MOEPLAN_TOOLS_PARALLEL_H_
#define MOEPLAN_TOOLS_PARALLEL_H_

#include "tools/args.h"
#include "tools/tool_error.h"

enum tool_status tool_parallel(const struct tool_args* args,
                               struct tool_error* error);

#endif /* MOEPLAN_TOOLS_PARALLEL_H_ */
