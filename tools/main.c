/* moeplan: plan the sites of a checkpoint, run them, compare, print. */

#include <moeplan.h>
#include <stdio.h>

#include "tools/args.h"
#include "tools/output.h"
#include "tools/print.h"
#include "tools/run.h"
#include "tools/tool_error.h"

static enum tool_status print_version(const struct tool_args* args,
                                      struct tool_error* error) {
  (void)args;
  struct tool_output output;
  const enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  fprintf(output.stream, "moeplan %s, numerics %d\n", moeplan_version_string(),
          MOEPLAN_NUMERICS_VERSION);
  return tool_output_close(&output, status, error);
}

static enum tool_status print_nothing(const struct tool_args* args,
                                      struct tool_error* error) {
  (void)args;
  (void)error;
  return tool_ok;
}

static enum tool_status (*const commands[])(const struct tool_args* args,
                                            struct tool_error* error) = {
    [tool_command_run] = tool_run,
    [tool_command_print] = tool_print,
    [tool_command_version] = print_version,
    [tool_command_help] = print_nothing,
};

int main(int argc, char** argv) {
  static struct tool_error error;
  struct tool_args args;
  enum tool_status status = tool_args_parse(argc, argv, &args, &error);
  if (status == tool_ok) status = commands[args.command](&args, &error);
  if (status != tool_ok) fprintf(stderr, "%s\n", error.text);
  return (int)status;
}
