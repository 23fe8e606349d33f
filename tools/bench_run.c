#define _GNU_SOURCE

#include "tools/bench_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_nodes.h"
#include "tools/output.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum {
  MAX_BATCHES = 1000,
  MIN_BATCHES = 5,
  QUEUED = 48, /* replays in the queue, where a call is timed: below 64 */
  HOST_ROUNDS = 40,
  POISON = 0xFF, /* as bf16 a NaN */
};

/* About this long between the events of a batch. */
static const double batch_seconds = 0.02;

struct bench_plan {
  struct tool_bench_run* run;
  uint32_t rows;
  moeplan_plan_t plan;
  moeplan_graph_t graphs[TOOL_BENCH_MAX_SETS];
};

double tool_bench_weight_bytes(const struct moeplan_config* config,
                               enum tool_routing routing, double experts) {
  const double hidden = config->hidden_size;
  if (config->kind == moeplan_site_dense) {
    return 6.0 * hidden * config->dense_local_intermediate;
  }
  const double expert =
      3.0 * hidden * config->moe_intermediate_size * 9.0 / 16.0;
  const double router = routing == tool_routing_router
                            ? 2.0 * hidden * config->n_routed_experts
                            : 0.0;
  return experts * expert + router +
         6.0 * hidden * config->shared_local_intermediate;
}

static bool draws_ids(const struct tool_bench_run* run) {
  return run->config->kind == moeplan_site_routed &&
         run->args->bench.routing != tool_routing_router;
}

static size_t slots_of(const struct bench_plan* bench) {
  return (size_t)bench->rows * bench->run->config->num_experts_per_tok;
}

static struct moeplan_binding bind_set(const struct bench_plan* bench,
                                       uint32_t set) {
  const struct tool_bench_run* run = bench->run;
  const size_t row_bytes = (size_t)run->config->hidden_size * 2;
  struct moeplan_binding binding = run->binding;
  binding.trace = (struct moeplan_trace_ring){.ids = NULL};
  binding.site = run->site.blobs[set % run->site.copies];
  binding.host_site = run->site.host_blobs[set % run->site.copies];
  binding.x = run->x + (size_t)set * run->max_rows * row_bytes;
  if (draws_ids(run)) {
    const size_t offset = (size_t)set * slots_of(bench) * sizeof(int32_t);
    binding.topk_ids = (const void*)(run->ids + offset);
    binding.topk_weights = (const void*)(run->weights + offset);
  }
  return binding;
}

static int write_text(void* context, const char* text, size_t bytes) {
  return fwrite(text, 1, bytes, context) == bytes ? 0 : 1;
}

/* The ids of every set, on the host and on the device. */
static enum tool_status draw_sets(const struct bench_plan* bench) {
  const struct tool_bench_run* run = bench->run;
  struct tool_error* error = run->session->error;
  const size_t slots = slots_of(bench);
  if (!draws_ids(run)) return tool_ok;
  for (uint32_t set = 0; set < run->sets; set++) {
    const struct tool_draw draw = {
        .routing = run->args->bench.routing,
        .rows = bench->rows,
        .experts = run->config->n_routed_experts,
        .k = run->config->num_experts_per_tok,
        .set = set,
    };
    tool_routing_draw(&draw, run->host_ids + set * slots,
                      run->host_weights + set * slots);
  }
  TRY(tool_memory_upload(run->memory, run->ids, run->host_ids,
                         run->sets * slots * sizeof(int32_t), error));
  return tool_memory_upload(run->memory, run->weights, run->host_weights,
                            run->sets * slots * sizeof(float), error);
}

static enum tool_status create_graphs(struct bench_plan* bench) {
  const struct tool_session* session = bench->run->session;
  for (uint32_t set = 0; set < bench->run->sets; set++) {
    const struct moeplan_binding binding = bind_set(bench, set);
    TRY(tool_session_check(
        session, "create a graph",
        moeplan_graph_create(bench->plan, &binding, &bench->graphs[set])));
  }
  return tool_ok;
}

static enum tool_status replay(const struct bench_plan* bench, uint32_t set) {
  return tool_session_check(
      bench->run->session, "replay a plan",
      moeplan_graph_replay(bench->graphs[set], bench->run->memory->stream));
}

/* Every set once, over poison: a time of a plan that leaves y unwritten, or that
 * computes with NaN, is worth nothing. */
static enum tool_status check_outputs(const struct bench_plan* bench) {
  const struct tool_bench_run* run = bench->run;
  struct tool_error* error = run->session->error;
  const size_t count = (size_t)bench->rows * run->config->hidden_size;
  for (uint32_t set = 0; set < run->sets; set++) {
    TRY(tool_memory_fill(run->memory, run->binding.y, POISON, count * 2,
                         error));
    TRY(replay(bench, set));
    TRY(tool_memory_wait(run->memory, error));
    TRY(tool_memory_download(run->memory, run->host_y, run->binding.y,
                             count * 2, error));
    for (size_t i = 0; i < count; i++) {
      if ((run->host_y[i] & 0x7F80) != 0x7F80) continue;
      return tool_fail(error,
                       "cannot time %u rows: y of set %u, row %zu, column %zu "
                       "is not finite",
                       bench->rows, set, i / run->config->hidden_size,
                       i % run->config->hidden_size);
    }
  }
  return tool_ok;
}

/* Where the router sent each set's rows, by a run with a trace ring: the graphs
 * that are timed have none. */
static enum tool_status trace_router(const struct bench_plan* bench,
                                     moeplan_plan_t plan, int32_t* ids) {
  const struct tool_bench_run* run = bench->run;
  struct tool_error* error = run->session->error;
  const size_t slots = slots_of(bench);
  const uint64_t zero = 0;
  for (uint32_t set = 0; set < run->sets; set++) {
    struct moeplan_binding binding = bind_set(bench, set);
    binding.trace = run->binding.trace;
    TRY(tool_memory_upload(run->memory, binding.trace.cursor, &zero,
                           sizeof(zero), error));
    TRY(tool_session_check(
        run->session, "run a plan",
        moeplan_enqueue(plan, &binding, run->memory->stream)));
    TRY(tool_memory_wait(run->memory, error));
    TRY(tool_memory_download(run->memory, ids + set * slots, binding.trace.ids,
                             slots * sizeof(int32_t), error));
  }
  return tool_ok;
}

/* Rows whose experts, as a set, are not those of the INVARIANT plan. */
static uint64_t count_changed(const int32_t* ids, const int32_t* invariant,
                              size_t rows, uint32_t k) {
  uint64_t changed = 0;
  for (size_t row = 0; row < rows; row++) {
    uint32_t same = 0;
    for (uint32_t i = 0; i < k * k; i++) {
      same += ids[row * k + i / k] == invariant[row * k + i % k] ? 1 : 0;
    }
    changed += same != k ? 1 : 0;
  }
  return changed;
}

/* In TIERED: the same rows by an INVARIANT plan. */
static enum tool_status compare_routing(const struct bench_plan* bench,
                                        struct tool_bench_result* result) {
  const struct tool_bench_run* run = bench->run;
  const size_t rows = (size_t)run->sets * bench->rows;
  const uint32_t k = run->config->num_experts_per_tok;
  struct moeplan_options options = run->session->options;
  moeplan_plan_t plan = NULL;
  options.numerics = moeplan_numerics_invariant;
  int32_t* ids = calloc(rows * k + 1, sizeof(*ids));
  if (ids == NULL) {
    return tool_fail(run->session->error,
                     "cannot hold %zu rows' ids: out of host memory", rows);
  }
  enum tool_status status = tool_session_check(
      run->session, "create an INVARIANT plan",
      moeplan_plan_create(run->session->planner, bench->rows, &options, &plan));
  if (status == tool_ok) status = trace_router(bench, plan, ids);
  if (status == tool_ok) {
    result->compared_rows = rows;
    result->changed_rows = count_changed(run->host_ids, ids, rows, k);
  }
  moeplan_plan_destroy(plan);
  free(ids);
  return status;
}

/* Floor bytes: every weight byte that is needed once, x, y, the ids from
 * outside. Between two reads of a copy's weights lie the replays of all other
 * copies. */
static void count_bytes(const struct bench_plan* bench,
                        struct tool_bench_result* result) {
  const struct tool_bench_run* run = bench->run;
  const struct moeplan_config* config = run->config;
  const enum tool_routing routing = run->args->bench.routing;
  const bool routed = config->kind == moeplan_site_routed;
  const size_t slots = slots_of(bench);
  double sum = 0.0;
  result->experts_min = UINT32_MAX;
  for (uint32_t set = 0; set < run->sets; set++) {
    const uint32_t distinct =
        routed ? tool_routing_count(run->host_ids + set * slots, slots) : 0;
    sum += distinct;
    if (distinct < result->experts_min) result->experts_min = distinct;
    if (distinct > result->experts_max) result->experts_max = distinct;
  }
  result->experts = sum / run->sets;
  result->bytes = tool_bench_weight_bytes(config, routing, result->experts) +
                  4.0 * bench->rows * config->hidden_size +
                  (draws_ids(run) ? 8.0 * (double)slots : 0.0);
  result->floor_seconds = result->bytes / run->machine->bytes_per_second;
  result->reuse_bytes =
      (run->site.copies - 1.0) *
      tool_bench_weight_bytes(config, routing, result->experts_min);
}

/* The plan's text has a line "lever NAME VALUE" for each. */
static enum tool_status keep_levers(const struct bench_plan* bench,
                                    char* levers) {
  const struct tool_session* session = bench->run->session;
  struct tool_output text;
  TRY(tool_output_open(&text, session->error));
  const enum tool_status status = tool_session_check(
      session, "print a plan",
      moeplan_plan_print(bench->plan, write_text, text.stream));
  fflush(text.stream);
  size_t used = 0;
  char* rest = NULL;
  for (char* line = strtok_r(text.text, "\n", &rest);
       line != NULL && used < TOOL_LEVER_BYTES;
       line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, "lever ", strlen("lever ")) != 0) continue;
    used += (size_t)snprintf(levers + used, TOOL_LEVER_BYTES - used, "%s%s",
                             used == 0 ? "" : ", ", line + strlen("lever "));
  }
  fclose(text.stream);
  free(text.text);
  return status;
}

static enum tool_status time_batch(const struct bench_plan* bench,
                                   struct tool_stopwatch* watch,
                                   uint32_t rounds, double* seconds_out) {
  TRY(tool_stopwatch_start(watch));
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t set = 0; set < bench->run->sets; set++) {
      TRY(replay(bench, set));
    }
  }
  return tool_stopwatch_stop(watch, seconds_out);
}

/* Batches of whole rounds over the sets, back to back on one stream. The first
 * fifth of the time warms up. */
static enum tool_status time_batches(const struct bench_plan* bench,
                                     struct tool_stopwatch* watch,
                                     struct tool_bench_result* result) {
  const struct tool_bench_run* run = bench->run;
  double samples[MAX_BATCHES];
  double seconds = 0.0;
  size_t count = 0;
  TRY(time_batch(bench, watch, 1, &seconds));
  const double wanted = seconds > 0.0 ? batch_seconds / seconds : 1.0;
  const uint32_t rounds = wanted > 1000.0 ? 1000
                          : wanted > 1.0  ? (uint32_t)wanted
                                          : 1;
  result->batch = rounds * run->sets;
  const double begin = tool_now_seconds();
  double warm = begin;
  while (warm - begin < run->seconds * 0.2) {
    TRY(time_batch(bench, watch, rounds, &seconds));
    warm = tool_now_seconds();
  }
  while (count < MAX_BATCHES &&
         (count < MIN_BATCHES || tool_now_seconds() - warm < run->seconds)) {
    TRY(time_batch(bench, watch, rounds, &seconds));
    samples[count] = seconds / result->batch;
    count++;
  }
  result->time = tool_spread_of(samples, count);
  return tool_ok;
}

/* One call at a time, never with a queue that could hold it up. */
static enum tool_status time_calls(const struct bench_plan* bench,
                                   struct tool_bench_result* result) {
  const struct tool_bench_run* run = bench->run;
  double samples[HOST_ROUNDS * QUEUED];
  size_t count = 0;
  if (run->memory->stream == NULL) return tool_ok;
  for (int round = 0; round < HOST_ROUNDS; round++) {
    TRY(tool_memory_wait(run->memory, run->session->error));
    for (int i = 0; i < QUEUED; i++) {
      const double begin = tool_now_seconds();
      TRY(replay(bench, (uint32_t)count % run->sets));
      samples[count] = tool_now_seconds() - begin;
      count++;
    }
  }
  result->host = tool_spread_of(samples, count);
  return tool_memory_wait(run->memory, run->session->error);
}

static enum tool_status run_plan(struct bench_plan* bench,
                                 struct tool_bench_result* result) {
  const struct tool_bench_run* run = bench->run;
  struct tool_stopwatch watch;
  TRY(tool_session_check(
      run->session, "create a plan",
      moeplan_plan_create(run->session->planner, bench->rows,
                          &run->session->options, &bench->plan)));
  TRY(tool_session_check(run->session, "describe a plan",
                         moeplan_plan_info(bench->plan, &result->info)));
  TRY(keep_levers(bench, result->levers));
  TRY(draw_sets(bench));
  TRY(create_graphs(bench));
  TRY(check_outputs(bench));
  if (run->config->kind == moeplan_site_routed && !draws_ids(run)) {
    TRY(trace_router(bench, bench->plan, run->host_ids));
    if (run->session->options.numerics == moeplan_numerics_tiered) {
      TRY(compare_routing(bench, result));
    }
  }
  count_bytes(bench, result);
  TRY(tool_stopwatch_open(&watch, run->memory, run->session->error));
  enum tool_status status = time_batches(bench, &watch, result);
  if (status == tool_ok) status = time_calls(bench, result);
  tool_stopwatch_close(&watch);
  if (status == tool_ok && run->args->bench.nodes) {
    const struct moeplan_binding binding = bind_set(bench, 0);
    status = tool_bench_nodes(run->session, bench->plan, &binding,
                              run->memory->stream, &result->nodes);
  }
  return status;
}

enum tool_status tool_bench_rows(struct tool_bench_run* run, uint32_t rows,
                                 struct tool_bench_result* result_out) {
  struct bench_plan bench = {.run = run, .rows = rows};
  struct tool_bench_result result = {.info = MOEPLAN_PLAN_INFO_INIT};
  const enum tool_status status = run_plan(&bench, &result);
  for (uint32_t set = 0; set < run->sets; set++) {
    moeplan_graph_destroy(bench.graphs[set]);
  }
  moeplan_plan_destroy(bench.plan);
  if (status == tool_ok) *result_out = result;
  return status;
}
