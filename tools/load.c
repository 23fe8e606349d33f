#include "tools/load.h"

#include <unistd.h>

enum tool_status tool_load_checkpoint(const struct tool_args* args,
                                      struct tool_problems* problems,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error) {
  struct tool_progress progress;
  tool_progress_open(&progress, STDERR_FILENO, TOOL_PROGRESS_DELAY_MS);
  const struct tool_load load = {
      .path = args->checkpoint,
      .site = args->site,
      .config = args->config,
      .problems = problems,
      .progress = &progress,
  };
  const enum tool_status status =
      tool_checkpoint_open(&load, checkpoint_out, error);
  tool_progress_close(&progress);
  return status;
}
