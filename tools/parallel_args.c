#define _GNU_SOURCE

#include "tools/parallel_args.h"

#include <string.h>

static enum tool_status parse_shared(const char* text,
                                     enum tool_shared_on* shared_out,
                                     struct tool_error* error) {
  for (int i = 0; i < TOOL_SHARED_COUNT; i++) {
    if (strcmp(text, tool_shared_names[i]) != 0) continue;
    *shared_out = (enum tool_shared_on)i;
    return tool_ok;
  }
  return tool_refuse(error,
                     "cannot use --shared-expert %s: split, first and whole "
                     "are known",
                     text);
}

error_t tool_parallel_option(int key, const char* value,
                             struct tool_parallel_args* args,
                             enum tool_status* status_out,
                             struct tool_error* error) {
  if (key == TOOL_PARALLEL_RANKS) {
    *status_out =
        tool_parse_number("ranks", value, TOOL_MAX_RANKS, &args->ranks, error);
  } else if (key == TOOL_PARALLEL_SHARED) {
    *status_out = parse_shared(value, &args->shared, error);
  } else {
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}
