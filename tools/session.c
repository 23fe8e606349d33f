#include "tools/session.h"

#include <stdio.h>

static void keep_log(void* context, enum moeplan_log_level level,
                     const char* text) {
  const struct tool_session* session = context;
  if (level == moeplan_log_error) {
    tool_fail(session->error, "%s", text);
  } else if (session->args->verbose) {
    fprintf(stderr, "%s: %s\n",
            level == moeplan_log_warning ? "warning" : "info", text);
  }
}

enum tool_status tool_session_check(const struct tool_session* session,
                                    const char* what,
                                    enum moeplan_status status) {
  if (status == moeplan_status_success) return tool_ok;
  /* Changes nothing if the library has logged a sentence. */
  tool_fail(session->error, "cannot %s: %s", what,
            moeplan_status_string(status));
  /* Only the environment sets options here. */
  return status == moeplan_status_unsupported_option ? tool_usage : tool_failed;
}

enum tool_status tool_session_open(struct tool_session* session,
                                   const struct tool_args* args,
                                   const struct moeplan_config* site_config,
                                   uint32_t max_rows,
                                   struct tool_error* error) {
  *session = (struct tool_session){
      .args = args, .error = error, .options = MOEPLAN_OPTIONS_INIT};
  struct moeplan_config config = *site_config;
  config.max_rows = max_rows;
  struct moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  hooks.context = session;
  hooks.log = keep_log;
  enum tool_status status = tool_session_check(
      session, "create a planner",
      moeplan_planner_create(&config, args->device, &hooks, &session->planner));
  if (status != tool_ok) return status;
  status = tool_session_check(
      session, "use the environment's MOEPLAN_* variables",
      moeplan_options_from_environment(session->planner, &session->options));
  if (status == tool_ok) return status;
  tool_session_close(session);
  return tool_usage;
}

void tool_session_close(struct tool_session* session) {
  moeplan_planner_destroy(session->planner);
  session->planner = NULL;
}
