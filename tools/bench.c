#define _GNU_SOURCE

#include "tools/bench.h"

#include <stdlib.h>
#include <string.h>

#include "tools/bench_config.h"
#include "tools/bench_fill.h"
#include "tools/bench_numerics.h"
#include "tools/bench_report.h"
#include "tools/bench_run.h"
#include "tools/output.h"
#include "tools/presets.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { DEFAULT_SETS = 24, HOST_SETS = 2 };

/* Weights may take this share of the GPU's free memory. */
static const double memory_share = 0.8;

static const struct tool_rank one_rank = TOOL_ONE_RANK;

/* As many copies as put TOOL_REUSE_L2 times the L2 between two reads of one at
 * one row, or as fit; whole rounds over them as sets. */
static enum tool_status choose_sets(struct tool_bench_run* run,
                                    uint32_t* copies_out,
                                    struct tool_error* error) {
  const uint32_t asked = run->args->bench.sets;
  uint32_t copies = 1;
  if (run->memory->stream != NULL) {
    size_t free_bytes = 0, total_bytes = 0;
    TRY(tool_cuda_try(cudaMemGetInfo(&free_bytes, &total_bytes),
                      "look at the GPU's memory", error));
    const double replay =
        tool_bench_weight_bytes(run->config, run->args->bench.routing,
                                run->config->num_experts_per_tok);
    const double wanted =
        2.0 + TOOL_REUSE_L2 * (double)run->machine->l2_bytes / replay;
    const double fit = memory_share * (double)free_bytes /
                       (double)tool_bench_site_bytes(run->config, &one_rank);
    const uint32_t most = asked != 0 ? asked : TOOL_BENCH_MAX_SETS;
    copies = wanted < most ? (uint32_t)wanted : most;
    if (fit < copies) copies = fit < 1.0 ? 1 : (uint32_t)fit;
  }
  uint32_t sets = asked != 0                    ? asked
                  : run->memory->stream == NULL ? HOST_SETS
                                                : DEFAULT_SETS;
  if (sets < copies) sets = copies;
  sets = (sets + copies - 1) / copies * copies;
  run->sets = sets <= TOOL_BENCH_MAX_SETS ? sets : sets - copies;
  *copies_out = copies;
  return tool_ok;
}

static enum tool_status allocate_outputs(struct tool_bench_run* run) {
  const struct moeplan_config* config = run->config;
  struct tool_error* error = run->session->error;
  struct moeplan_binding* binding = &run->binding;
  const size_t slots = (size_t)run->max_rows * config->num_experts_per_tok;
  const size_t y_bytes = (size_t)run->max_rows * config->hidden_size * 2;
  void* block = NULL;
  TRY(tool_session_check(
      run->session, "size the workspace",
      moeplan_workspace_size(run->session->planner, run->max_rows,
                             &run->session->options,
                             &binding->workspace_bytes)));
  TRY(tool_memory_allocate(run->memory, binding->workspace_bytes,
                           &binding->workspace, error));
  TRY(tool_memory_allocate(run->memory, y_bytes, &binding->y, error));
  TRY(tool_memory_allocate(run->memory, slots * sizeof(int32_t), &block,
                           error));
  binding->trace.ids = block;
  TRY(tool_memory_allocate(run->memory, slots * sizeof(float), &block, error));
  binding->trace.weights = block;
  TRY(tool_memory_allocate(run->memory, sizeof(uint64_t), &block, error));
  binding->trace.cursor = block;
  binding->trace.capacity_rows = run->max_rows;
  return tool_ok;
}

static enum tool_status allocate_inputs(struct tool_bench_run* run) {
  const struct moeplan_config* config = run->config;
  struct tool_error* error = run->session->error;
  const size_t slots =
      (size_t)run->sets * run->max_rows * config->num_experts_per_tok;
  const size_t y_bytes = (size_t)run->max_rows * config->hidden_size * 2;
  void* block = NULL;
  run->host_ids = calloc(slots, sizeof(*run->host_ids));
  run->host_weights = calloc(slots, sizeof(*run->host_weights));
  run->host_y = malloc(y_bytes);
  if (run->host_ids == NULL || run->host_weights == NULL ||
      run->host_y == NULL) {
    return tool_fail(error, "cannot hold %u sets: out of host memory",
                     run->sets);
  }
  TRY(tool_memory_allocate(run->memory, run->sets * y_bytes, &block, error));
  run->x = block;
  TRY(tool_memory_allocate(run->memory, slots * sizeof(int32_t), &block,
                           error));
  run->ids = block;
  TRY(tool_memory_allocate(run->memory, slots * sizeof(float), &block, error));
  run->weights = block;
  return tool_bench_fill(run->memory, run->x, run->sets * y_bytes,
                         tool_words_bf16_x, UINT64_C(1) << 60, error);
}

static enum tool_status print_report(const struct tool_bench_report* report,
                                     struct tool_error* error) {
  if (report->run->args->bench.plot != NULL) {
    TRY(tool_bench_plot(report, error));
  }
  return report->run->args->json ? tool_bench_json(report, error)
                                 : tool_bench_table(report, error);
}

/* With a device, a planner and a machine that has been measured. */
static enum tool_status run_all(struct tool_bench_run* run,
                                struct tool_error* error) {
  static struct tool_bench_result results[TOOL_MAX_ROW_COUNTS];
  struct tool_bench_report report = {.run = run, .results = results};
  uint32_t copies = 1;
  TRY(choose_sets(run, &copies, error));
  TRY(tool_bench_site_place(run->session, run->config, &one_rank, run->memory,
                            copies, &run->site));
  TRY(allocate_outputs(run));
  TRY(allocate_inputs(run));
  for (size_t i = 0; i < run->args->num_rows; i++) {
    TRY(tool_bench_rows(run, run->args->rows[i], &results[i]));
    report.num_results++;
  }
  const enum tool_status status = print_report(&report, error);
  for (size_t i = 0; i < report.num_results; i++) free(results[i].nodes);
  return status;
}

static enum tool_status open_and_run(struct tool_bench_run* run,
                                     struct tool_error* error) {
  struct tool_machine machine;
  struct tool_session session;
  struct tool_memory memory;
  TRY(tool_memory_open(run->args->device, &memory, error));
  enum tool_status status =
      tool_session_open(&session, run->args, run->config, run->max_rows, error);
  if (status != tool_ok) goto close_memory;
  status = tool_machine_measure(run->args->device, &machine, error);
  if (status != tool_ok) goto close_session;
  /* Locals whose addresses are taken back below. */
  run->machine = &machine; /* cppcheck-suppress autoVariables */
  run->session = &session; /* cppcheck-suppress autoVariables */
  run->memory = &memory;   /* cppcheck-suppress autoVariables */
  run->seconds = run->args->bench.seconds;
  if (run->seconds == 0.0) run->seconds = memory.stream == NULL ? 0.2 : 1.0;
  status = run_all(run, error);
  tool_bench_site_free(&run->site);
  free(run->host_ids);
  free(run->host_weights);
  free(run->host_y);
  run->machine = NULL;
  run->session = NULL;
  run->memory = NULL;
close_session:
  tool_session_close(&session);
close_memory:
  tool_memory_close(&memory);
  return status;
}

static enum tool_status list_presets(struct tool_error* error) {
  struct tool_output output;
  TRY(tool_output_open(&output, error));
  tool_presets_print(output.stream);
  return tool_output_close(&output, tool_ok, error);
}

enum tool_status tool_bench(const struct tool_args* args,
                            struct tool_error* error) {
  static struct tool_bench_run run;
  struct moeplan_config config;
  struct tool_args filled = *args;
  if (args->bench.numerics) return tool_bench_numerics(args, error);
  if (args->preset != NULL && strcmp(args->preset, "list") == 0) {
    return list_presets(error);
  }
  if (filled.num_rows == 0) {
    static const uint32_t defaults[] = {1, 2, 4, 8};
    memcpy(filled.rows, defaults, sizeof(defaults));
    filled.num_rows = sizeof(defaults) / sizeof(defaults[0]);
  }
  TRY(tool_bench_config(&filled, &config, error));
  run = (struct tool_bench_run){
      .args = &filled, .config = &config, .binding = MOEPLAN_BINDING_INIT};
  for (size_t i = 0; i < filled.num_rows; i++) {
    if (filled.rows[i] > run.max_rows) run.max_rows = filled.rows[i];
  }
  TRY(tool_bench_check_routing(&filled, &config, run.max_rows, error));
  return open_and_run(&run, error);
}
