#define _GNU_SOURCE

#include "tools/problems.h"

#include <stdlib.h>
#include <string.h>

enum tool_status tool_problems_take(struct tool_problems* problems,
                                    enum tool_status status,
                                    struct tool_error* error) {
  if (status == tool_ok || problems == NULL) return status;
  if (problems->count == TOOL_MAX_PROBLEMS) {
    problems->left_out++;
    error->text[0] = '\0';
    return tool_ok;
  }
  char** lines =
      reallocarray(problems->lines, problems->count + 1, sizeof(*lines));
  if (lines == NULL) return status; /* no memory: the first fault ends it */
  problems->lines = lines;
  lines[problems->count] = strdup(error->text);
  if (lines[problems->count] == NULL) return status;
  problems->count++;
  error->text[0] = '\0';
  return tool_ok;
}

void tool_problems_free(struct tool_problems* problems) {
  for (size_t i = 0; i < problems->count; i++) free(problems->lines[i]);
  free(problems->lines);
  *problems = (struct tool_problems){NULL, 0, 0};
}
