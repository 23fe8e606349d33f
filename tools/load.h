/* Load the checkpoint that the command line names, with progress on a terminal. */

#ifndef MOEPLAN_TOOLS_LOAD_H_
#define MOEPLAN_TOOLS_LOAD_H_

#include "tools/args.h"
#include "tools/checkpoint.h"

/* `problems` may be NULL: the first fault then ends it. */
enum tool_status tool_load_checkpoint(const struct tool_args* args,
                                      struct tool_problems* problems,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error);

#endif /* MOEPLAN_TOOLS_LOAD_H_ */
