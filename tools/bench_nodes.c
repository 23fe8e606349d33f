#define _GNU_SOURCE

#include "tools/bench_nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/output.h"

enum { REPEATS = 30 };

static int write_text(void* context, const char* text, size_t bytes) {
  return fwrite(text, 1, bytes, context) == bytes ? 0 : 1;
}

/* The plan's text has a line for each node, which begins with its number and its
 * kernel. */
static void print_lines(char* plan_text, const double* seconds, uint32_t nodes,
                        FILE* out) {
  char* rest = NULL;
  uint32_t node = 0;
  for (char* line = strtok_r(plan_text, "\n", &rest);
       line != NULL && node < nodes; line = strtok_r(NULL, "\n", &rest)) {
    uint32_t number;
    char kernel[64];
    if (sscanf(line, "%" SCNu32 " %63s", &number, kernel) != 2) continue;
    if (number != node) continue;
    fprintf(out, "%5" PRIu32 " %-32s %9.2f\n", node, kernel,
            seconds[node] * 1e6);
    node++;
  }
}

enum tool_status tool_bench_nodes(const struct tool_session* session,
                                  moeplan_plan_t plan,
                                  const struct moeplan_binding* binding,
                                  void* stream, char** text_out) {
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  struct tool_output plan_text, lines;
  enum tool_status status = tool_session_check(session, "describe a plan",
                                               moeplan_plan_info(plan, &info));
  if (status != tool_ok) return status;
  double* seconds = calloc(info.nodes, sizeof(*seconds));
  if (seconds == NULL) {
    return tool_fail(session->error, "cannot time %u nodes: out of host memory",
                     info.nodes);
  }
  status =
      tool_session_check(session, "measure a plan's nodes",
                         moeplan_measure_nodes(plan, binding, stream, REPEATS,
                                               seconds, info.nodes));
  if (status == tool_ok) status = tool_output_open(&plan_text, session->error);
  if (status != tool_ok) {
    free(seconds);
    return status;
  }
  status = tool_session_check(
      session, "print a plan",
      moeplan_plan_print(plan, write_text, plan_text.stream));
  fflush(plan_text.stream);
  if (status == tool_ok) status = tool_output_open(&lines, session->error);
  if (status == tool_ok) {
    print_lines(plan_text.text, seconds, info.nodes, lines.stream);
    fclose(lines.stream);
    *text_out = lines.text;
  }
  fclose(plan_text.stream);
  free(plan_text.text);
  free(seconds);
  return status;
}
