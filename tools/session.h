/* A site's planner on a device, with the levers of the environment and a log
 * that keeps the library's first error as the tool's sentence. */

#ifndef MOEPLAN_TOOLS_SESSION_H_
#define MOEPLAN_TOOLS_SESSION_H_

#include <moeplan.h>

#include "tools/args.h"
#include "tools/tool_error.h"

struct tool_session {
  const struct tool_args* args;
  struct tool_error* error;
  moeplan_planner_t planner;
  struct moeplan_options options;
};

/* The session must not move: the library's log hook points to it. */
enum tool_status tool_session_open(struct tool_session* session,
                                   const struct tool_args* args,
                                   const struct moeplan_config* site_config,
                                   uint32_t max_rows, struct tool_error* error);
void tool_session_close(struct tool_session* session);

/* tool_ok, or the library's sentence, which it has logged, and tool_failed;
 * tool_usage where an option, hence a MOEPLAN_* variable, was refused. */
enum tool_status tool_session_check(const struct tool_session* session,
                                    const char* what,
                                    enum moeplan_status status);

#endif /* MOEPLAN_TOOLS_SESSION_H_ */
