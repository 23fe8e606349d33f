/* What is wrong with a checkpoint, one sentence each: a loader that is given
 * this list goes on after a fault where it can. Without one (NULL) the first
 * fault ends the loading. */

#ifndef MOEPLAN_TOOLS_PROBLEMS_H_
#define MOEPLAN_TOOLS_PROBLEMS_H_

#include <stddef.h>

#include "tools/tool_error.h"

enum { TOOL_MAX_PROBLEMS = 1000 };

/* Start from {NULL}. */
struct tool_problems {
  char** lines;
  size_t count;
  size_t left_out; /* beyond TOOL_MAX_PROBLEMS */
};

/* tool_ok passes. Anything else: move the sentence from `error` into the list
 * and return tool_ok, or `status` where `problems` is NULL. */
enum tool_status tool_problems_take(struct tool_problems* problems,
                                    enum tool_status status,
                                    struct tool_error* error);
void tool_problems_free(struct tool_problems* problems);

#endif /* MOEPLAN_TOOLS_PROBLEMS_H_ */
