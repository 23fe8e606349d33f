/* Text that reaches stdout all at once, or not at all. */

#ifndef MOEPLAN_TOOLS_OUTPUT_H_
#define MOEPLAN_TOOLS_OUTPUT_H_

#include <stddef.h>
#include <stdio.h>

#include "tools/tool_error.h"

struct tool_output {
  FILE* stream; /* write here */
  char* text;
  size_t bytes;
};

/* The output must not move until it is closed. */
enum tool_status tool_output_open(struct tool_output* output,
                                  struct tool_error* error);

/* Write to stdout if `status` is tool_ok, free in either case, and return
 * `status` or what went wrong here. */
enum tool_status tool_output_close(struct tool_output* output,
                                   enum tool_status status,
                                   struct tool_error* error);

#endif /* MOEPLAN_TOOLS_OUTPUT_H_ */
