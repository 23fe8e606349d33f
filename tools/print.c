#define _GNU_SOURCE

#include "tools/print.h"

#include <moeplan.h>
#include <stdio.h>

#include "tools/checkpoint.h"
#include "tools/device_memory.h"
#include "tools/load.h"
#include "tools/output.h"
#include "tools/session.h"

static int write_text(void* context, const char* text, size_t bytes) {
  return fwrite(text, 1, bytes, context) == bytes ? 0 : 1;
}

static enum tool_status print_plan(const struct tool_session* session,
                                   const struct tool_site* site, uint32_t rows,
                                   FILE* out) {
  moeplan_plan_t plan = NULL;
  enum tool_status status = tool_session_check(
      session, "create a plan",
      moeplan_plan_create(session->planner, rows, &session->options, &plan));
  if (status != tool_ok) return status;
  fprintf(out, "site %s\n", site->prefix);
  status = tool_session_check(session, "print a plan",
                              moeplan_plan_print(plan, write_text, out));
  if (status == tool_ok) {
    status = tool_session_check(session, "print a workspace",
                                moeplan_workspace_print(plan, write_text, out));
  }
  fputc('\n', out);
  moeplan_plan_destroy(plan);
  return status;
}

static enum tool_status print_site(const struct tool_args* args,
                                   const struct tool_site* site, FILE* out,
                                   struct tool_error* error) {
  uint32_t max_rows = 1;
  for (size_t i = 0; i < args->num_rows; i++) {
    if (args->rows[i] > max_rows) max_rows = args->rows[i];
  }
  struct tool_session session;
  enum tool_status status =
      tool_session_open(&session, args, &site->config, max_rows, error);
  for (size_t i = 0; i < args->num_rows && status == tool_ok; i++) {
    status = print_plan(&session, site, args->rows[i], out);
  }
  tool_session_close(&session);
  return status;
}

enum tool_status tool_print(const struct tool_args* args,
                            struct tool_error* error) {
  struct tool_args filled = *args;
  if (filled.num_rows == 0) {
    filled.rows[0] = 1;
    filled.num_rows = 1;
  }
  struct tool_checkpoint checkpoint;
  struct tool_memory memory; /* nothing but the device made current */
  struct tool_output output;
  enum tool_status status =
      tool_load_checkpoint(args, NULL, &checkpoint, error);
  if (status != tool_ok) return status;
  status = tool_memory_open(args->device, &memory, error);
  if (status != tool_ok) goto close_checkpoint;
  status = tool_output_open(&output, error);
  if (status != tool_ok) goto close_memory;
  for (size_t i = 0; i < checkpoint.num_sites && status == tool_ok; i++) {
    status = print_site(&filled, &checkpoint.sites[i], output.stream, error);
  }
  status = tool_output_close(&output, status, error);
close_memory:
  tool_memory_close(&memory);
close_checkpoint:
  tool_checkpoint_close(&checkpoint);
  return status;
}
