/* moeplan: plan the sites of a checkpoint, run them, compare, print. */

#define _GNU_SOURCE

#include <moeplan.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/args.h"
#include "tools/bench.h"
#include "tools/inspect.h"
#include "tools/output.h"
#include "tools/parallel.h"
#include "tools/plan.h"
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
    [tool_command_inspect] = tool_inspect,
    [tool_command_plan] = tool_plan,
    [tool_command_bench] = tool_bench,
    [tool_command_parallel] = tool_parallel,
    [tool_command_version] = print_version,
    [tool_command_help] = print_nothing,
};

/* The one fault of a mapped file that no check before a read can exclude. */
static void on_bus_error(int signal_number) {
  static const char text[] =
      "cannot read the checkpoint: a mapped file became shorter, or its device "
      "failed, while it was read\n";
  (void)signal_number;
  const ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
  (void)ignored;
  _exit(tool_failed);
}

int main(int argc, char** argv) {
  static struct tool_error error;
  struct tool_args args;
  const struct sigaction bus_error = {.sa_handler = on_bus_error};
  sigaction(SIGBUS, &bus_error, NULL);
  enum tool_status status = tool_args_parse(argc, argv, &args, &error);
  if (status == tool_ok) status = commands[args.command](&args, &error);
  if (status != tool_ok) fprintf(stderr, "%s\n", error.text);
  return (int)status;
}
