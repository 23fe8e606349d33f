#define _GNU_SOURCE

#include "tools/parallel.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_config.h"
#include "tools/bench_run.h"
#include "tools/output.h"
#include "tools/parallel_report.h"
#include "tools/presets.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { DEFAULT_RANKS = 2, DEFAULT_SETS = 24, HOST_SETS = 2, REUSE_L2 = 3 };

/* The whole site may take this share of the first GPU's free memory. */
static const double memory_share = 0.8;

/* Everything of one run; too large for a stack. */
struct parallel {
  struct tool_args args;
  struct moeplan_config config;   /* of the whole site */
  struct tool_parallel_run run;   /* of the ranks */
  struct tool_parallel_run alone; /* of the site on one device */
  struct tool_gate gate;
  struct tool_nccl nccl;
  struct tool_machine machine;
  struct tool_parallel_rank whole;
  struct tool_parallel_rank ranks[TOOL_MAX_RANKS];
  uint32_t count;
};

static bool on_host(const struct parallel* parallel) {
  return strcmp(parallel->run.args->device, "host") == 0;
}

static enum tool_status check_gpus(uint32_t ranks, struct tool_error* error) {
  int found = 0;
  if (cudaGetDeviceCount(&found) != cudaSuccess) found = 0;
  if ((uint32_t)found >= ranks) return tool_ok;
  return tool_fail(error,
                   "cannot run %u ranks: each wants a GPU of its own, and here "
                   "%s %d (--device host runs them one after another)",
                   ranks, found == 1 ? "is" : "are", found);
}

/* As many copies as put REUSE_L2 times the L2 between two reads of one at one
 * row, on the rank with the least to read; every rank has as many. */
static enum tool_status choose_copies(struct parallel* parallel,
                                      struct tool_error* error) {
  struct tool_parallel_run* run = &parallel->run;
  const struct moeplan_config* config = run->config;
  const struct tool_rank one = TOOL_ONE_RANK;
  size_t free_bytes = 0, total_bytes = 0;
  run->copies = 1;
  if (on_host(parallel)) return tool_ok;
  TRY(tool_cuda_try(cudaSetDevice(0), "use the first GPU", error));
  TRY(tool_cuda_try(cudaMemGetInfo(&free_bytes, &total_bytes),
                    "look at the GPU's memory", error));
  const double least = tool_bench_weight_bytes(config, run->args->bench.routing,
                                               config->num_experts_per_tok) /
                       parallel->count;
  const double wanted =
      2.0 + REUSE_L2 * (double)parallel->machine.l2_bytes / least;
  const double fit = memory_share * (double)free_bytes /
                     (double)tool_bench_site_bytes(config, &one);
  const double most = fit < run->sets ? fit : run->sets;
  run->copies = wanted < most ? (uint32_t)wanted : (uint32_t)most;
  if (run->copies == 0) run->copies = 1;
  return tool_ok;
}

static void* run_thread(void* rank) {
  tool_parallel_rank_run(rank);
  return NULL;
}

/* All ranks at once, a thread each; on the host device one after another. */
static enum tool_status run_ranks(struct parallel* parallel,
                                  struct tool_error* error) {
  pthread_t threads[TOOL_MAX_RANKS];
  const bool host = on_host(parallel);
  TRY(tool_gate_open(&parallel->gate, host ? 1 : parallel->count, error));
  for (uint32_t i = 0; i < parallel->count; i++) {
    struct tool_parallel_rank* rank = &parallel->ranks[i];
    *rank = (struct tool_parallel_rank){
        .run = &parallel->run,
        .rank = {i, parallel->count, parallel->run.args->parallel.shared}};
    snprintf(rank->device, sizeof(rank->device), host ? "host" : "cuda:%u", i);
    if (host) {
      tool_parallel_rank_run(rank);
    } else if (pthread_create(&threads[i], NULL, run_thread, rank) != 0) {
      /* The others wait at the gate for this one. */
      fputs("cannot start a thread for each rank\n", stderr);
      exit(tool_failed);
    }
  }
  for (uint32_t i = 0; i < parallel->count && !host; i++) {
    pthread_join(threads[i], NULL);
  }
  tool_gate_close(&parallel->gate);
  enum tool_status status = tool_ok;
  for (uint32_t i = 0; i < parallel->count && status == tool_ok; i++) {
    const struct tool_parallel_rank* rank = &parallel->ranks[i];
    if (rank->error.text[0] == '\0') continue; /* well, or stopped by another */
    status = tool_fail(error, "%s", rank->error.text);
  }
  return status;
}

static enum tool_status run_whole(struct parallel* parallel,
                                  struct tool_error* error) {
  struct tool_parallel_rank* whole = &parallel->whole;
  parallel->alone = parallel->run;
  TRY(tool_gate_open(&parallel->gate, 1, error));
  *whole = (struct tool_parallel_rank){.run = &parallel->alone,
                                       .rank = TOOL_ONE_RANK};
  snprintf(whole->device, sizeof(whole->device), "%s",
           on_host(parallel) ? "host" : "cuda:0");
  tool_parallel_rank_run(whole);
  tool_gate_close(&parallel->gate);
  if (whole->status == tool_ok) return tool_ok;
  tool_error_write(error, "%s", whole->error.text);
  return whole->status;
}

/* ---- the sums against the whole site ---- */

/* The sum's y of a set: a rank's, or on the host device made here. */
static void sum_ranks(const struct parallel* parallel, size_t line,
                      size_t offset, size_t count, float* sum) {
  memset(sum, 0, count * sizeof(*sum));
  for (uint32_t i = 0; i < parallel->count; i++) {
    const float* y = parallel->ranks[i].results[line].y + offset;
    for (size_t j = 0; j < count; j++) sum[j] += y[j];
  }
}

static double row_error(const float* sum, const float* y, size_t count) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < count; i++) {
    const double d = (double)sum[i] - y[i];
    difference += d * d;
    norm += (double)y[i] * y[i];
  }
  return sqrt(difference / norm);
}

/* The worst row over all sets; NaN if any is. All ranks must hold one sum. */
static enum tool_status compare(const struct parallel* parallel, size_t line,
                                double* worst_out, struct tool_error* error) {
  const size_t hidden = parallel->run.config->hidden_size;
  const size_t rows =
      (size_t)parallel->run.sets * parallel->run.args->rows[line];
  const float* whole = parallel->whole.results[line].y;
  float* sum = malloc(hidden * sizeof(*sum));
  if (sum == NULL) return tool_fail(error, "cannot add up: out of host memory");
  *worst_out = 0.0;
  enum tool_status status = tool_ok;
  for (size_t row = 0; row < rows && status == tool_ok; row++) {
    const size_t at = row * hidden;
    const float* first = parallel->ranks[0].results[line].y + at;
    if (on_host(parallel)) {
      sum_ranks(parallel, line, at, hidden, sum);
    } else {
      memcpy(sum, first, hidden * sizeof(*sum));
    }
    for (uint32_t i = 1; i < parallel->count && !on_host(parallel); i++) {
      const float* other = parallel->ranks[i].results[line].y + at;
      if (memcmp(first, other, hidden * sizeof(*sum)) == 0) continue;
      status =
          tool_fail(error,
                    "cannot accept the sum of %u ranks: ranks 0 and %u hold "
                    "different bits",
                    parallel->count, i);
    }
    const double worst = row_error(sum, whole + at, hidden);
    if (!(worst <= *worst_out)) *worst_out = worst;
  }
  free(sum);
  return status;
}

/* The rank with the longest median decides. */
static void keep_slowest(const struct parallel* parallel, size_t line,
                         struct tool_parallel_line* out) {
  for (int graph = 0; graph < TOOL_PARALLEL_GRAPHS; graph++) {
    for (uint32_t i = 0; i < parallel->count; i++) {
      const struct tool_spread* time =
          &parallel->ranks[i].results[line].time[graph];
      if (time->median > out->ranks[graph].median) out->ranks[graph] = *time;
    }
  }
}

static enum tool_status report_run(const struct parallel* parallel,
                                   struct tool_error* error) {
  static struct tool_parallel_line lines[TOOL_MAX_ROW_COUNTS];
  static struct moeplan_config parts[TOOL_MAX_RANKS];
  const struct tool_args* args = parallel->run.args;
  const struct tool_parallel_report report = {
      .run = &parallel->run,
      .machine = &parallel->machine,
      .parts = parts,
      .ranks = parallel->count,
      .nccl = parallel->nccl.version,
      .lines = lines,
      .num_lines = args->num_rows,
  };
  for (uint32_t i = 0; i < parallel->count; i++) {
    parts[i] = parallel->ranks[i].config;
  }
  for (size_t i = 0; i < args->num_rows; i++) {
    lines[i] = (struct tool_parallel_line){
        .info = &parallel->whole.results[i].info,
        .whole = parallel->whole.results[i].time[tool_parallel_plan],
    };
    keep_slowest(parallel, i, &lines[i]);
    TRY(compare(parallel, i, &lines[i].relative_l2, error));
  }
  TRY(args->json ? tool_parallel_json(&report, error)
                 : tool_parallel_table(&report, error));
  return tool_parallel_verdict(&report, error);
}

static enum tool_status run_all(struct parallel* parallel,
                                struct tool_error* error) {
  struct tool_parallel_run* run = &parallel->run;
  TRY(tool_machine_measure(on_host(parallel) ? "host" : "cuda:0",
                           &parallel->machine, error));
  TRY(choose_copies(parallel, error));
  TRY(run_whole(parallel, error));
  if (!on_host(parallel)) {
    TRY(tool_nccl_open(parallel->count, &parallel->nccl, error));
    run->nccl = &parallel->nccl;
  }
  const enum tool_status status = run_ranks(parallel, error);
  if (run->nccl != NULL) tool_nccl_close(&parallel->nccl);
  if (status != tool_ok) return status;
  return report_run(parallel, error);
}

static enum tool_status list_presets(struct tool_error* error) {
  struct tool_output output;
  TRY(tool_output_open(&output, error));
  tool_presets_print(output.stream);
  return tool_output_close(&output, tool_ok, error);
}

enum tool_status tool_parallel(const struct tool_args* args,
                               struct tool_error* error) {
  static struct parallel parallel;
  struct tool_args* filled = &parallel.args;
  struct tool_parallel_run* run = &parallel.run;
  *filled = *args;
  if (args->preset != NULL && strcmp(args->preset, "list") == 0) {
    return list_presets(error);
  }
  if (filled->num_rows == 0) {
    static const uint32_t defaults[] = {1, 4, 8};
    memcpy(filled->rows, defaults, sizeof(defaults));
    filled->num_rows = sizeof(defaults) / sizeof(defaults[0]);
  }
  TRY(tool_bench_config(filled, &parallel.config, error));
  const bool host = strcmp(args->device, "host") == 0;
  parallel.count =
      args->parallel.ranks == 0 ? DEFAULT_RANKS : args->parallel.ranks;
  run->args = filled;
  run->config = &parallel.config;
  run->gate = &parallel.gate;
  run->sets = args->bench.sets != 0 ? args->bench.sets
              : host                ? HOST_SETS
                                    : DEFAULT_SETS;
  run->seconds = args->bench.seconds == 0.0 ? 0.5 : args->bench.seconds;
  for (size_t i = 0; i < filled->num_rows; i++) {
    if (filled->rows[i] > run->max_rows) run->max_rows = filled->rows[i];
  }
  const struct tool_rank first = {0, parallel.count, args->parallel.shared};
  TRY(tool_bench_check_routing(filled, run->config, run->max_rows, error));
  TRY(tool_rank_check(&first, run->config, error));
  if (!host) TRY(check_gpus(parallel.count, error));
  const enum tool_status status = run_all(&parallel, error);
  tool_parallel_rank_free(&parallel.whole);
  for (uint32_t i = 0; i < parallel.count; i++) {
    tool_parallel_rank_free(&parallel.ranks[i]);
  }
  return status;
}
