/* What a part of the tool hands back: a status for the program, which is also
 * the exit status of the process, and one sentence for the person. Only main
 * prints the sentence. */

#ifndef MOEPLAN_TOOLS_TOOL_ERROR_H_
#define MOEPLAN_TOOLS_TOOL_ERROR_H_

enum tool_status {
  tool_ok = 0,
  tool_failed = 1, /* a bad file, a device's refusal, a result above the bar */
  tool_usage = 2,  /* a bad argument or MOEPLAN_* variable */
};

/* Start from {""}. The first sentence stays: what follows is a consequence. */
struct tool_error {
  char text[6144]; /* a path of PATH_MAX bytes and the rule */
};

/* Write the sentence as printf does, unless there is one. Control characters,
 * which names in a file may hold, become '?'. */
void tool_error_write(struct tool_error* error, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

static inline enum tool_status tool_status_of(enum tool_status status) {
  return status;
}

/* Write the sentence and return tool_failed or tool_usage. Macros, so that
 * whoever reads a caller, a static analyzer too, sees that it fails. */
#define tool_fail(error, ...) \
  (tool_error_write(error, __VA_ARGS__), tool_status_of(tool_failed))
#define tool_refuse(error, ...) \
  (tool_error_write(error, __VA_ARGS__), tool_status_of(tool_usage))

#endif /* MOEPLAN_TOOLS_TOOL_ERROR_H_ */
