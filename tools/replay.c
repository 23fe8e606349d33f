#define _GNU_SOURCE

#include "tools/replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/compare.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { MAX_SAMPLES = 101, POISON = 0xFF };

/* A plan, its binding, and its graph unless the plan cannot have one. */
struct bound_plan {
  uint32_t rows;
  moeplan_plan_t plan;
  moeplan_graph_t graph; /* NULL: enqueue the plan each time */
  struct moeplan_binding binding;
};

static enum tool_status allocate_buffers(struct tool_replay* replay,
                                         uint32_t max_rows) {
  struct tool_memory* memory = &replay->memory;
  struct tool_error* error = replay->session.error;
  struct moeplan_binding* binding = &replay->binding;
  const struct moeplan_config* config = &replay->site->config;
  const size_t y_bytes = (size_t)max_rows * config->hidden_size * 2;
  const size_t slots = (size_t)max_rows * config->num_experts_per_tok;
  void* block = NULL;
  TRY(tool_memory_allocate(memory, y_bytes, &replay->x, error));
  binding->x = replay->x;
  TRY(tool_memory_allocate(memory, y_bytes, &binding->y, error));
  TRY(tool_memory_allocate(memory, sizeof(int32_t), &block, error));
  replay->live_rows = block;
  TRY(tool_memory_allocate(memory, binding->workspace_bytes,
                           &binding->workspace, error));
  TRY(tool_memory_fill(memory, binding->workspace, POISON,
                       binding->workspace_bytes, error));
  replay->host_y = malloc(y_bytes);
  replay->host_ids = malloc(slots * sizeof(int32_t));
  if (replay->host_y == NULL || replay->host_ids == NULL) {
    return tool_fail(error, "cannot allocate %zu bytes: out of host memory",
                     y_bytes);
  }
  if (config->kind == moeplan_site_dense) return tool_ok;
  TRY(tool_memory_allocate(memory, slots * sizeof(int32_t), &block, error));
  binding->trace.ids = block;
  TRY(tool_memory_allocate(memory, slots * sizeof(float), &block, error));
  binding->trace.weights = block;
  TRY(tool_memory_allocate(memory, sizeof(uint64_t), &block, error));
  binding->trace.cursor = block;
  return tool_ok;
}

/* The site's blob, written on the host and then given to the device. */
static enum tool_status place_site(struct tool_replay* replay,
                                   struct tool_site* site) {
  const struct tool_session* session = &replay->session;
  struct tool_memory* memory = &replay->memory;
  TRY(tool_memory_place(memory, site, session->error));
  size_t bytes = 0;
  TRY(tool_session_check(session, "size the site",
                         moeplan_site_size(session->planner, &bytes)));
  void* placed = NULL;
  TRY(tool_memory_allocate(memory, bytes, &placed, session->error));
  void* blob = malloc(bytes);
  if (blob == NULL) {
    return tool_fail(session->error,
                     "cannot allocate %zu bytes: out of host memory", bytes);
  }
  replay->blob = blob;
  replay->binding.site = placed;
  replay->binding.host_site = blob;
  TRY(tool_session_check(
      session, "write the site",
      moeplan_site_write(session->planner, &site->weights, blob, bytes)));
  return tool_memory_upload(memory, placed, blob, bytes, session->error);
}

enum tool_status tool_replay_open(struct tool_replay* replay,
                                  const struct tool_args* args,
                                  struct tool_site* site, uint32_t max_rows,
                                  struct tool_error* error) {
  *replay = (struct tool_replay){.site = site, .binding = MOEPLAN_BINDING_INIT};
  struct tool_session* session = &replay->session;
  enum tool_status status =
      tool_memory_open(args->device, &replay->memory, error);
  if (status != tool_ok) return status;
  status = tool_session_open(session, args, &site->config, max_rows, error);
  if (status != tool_ok) goto close_replay;
  status = tool_session_check(
      session, "size the workspace",
      moeplan_workspace_size(session->planner, max_rows, &session->options,
                             &replay->binding.workspace_bytes));
  if (status != tool_ok) goto close_replay;
  status = allocate_buffers(replay, max_rows);
  if (status != tool_ok) goto close_replay;
  status = place_site(replay, site);
  if (status == tool_ok) return tool_ok;
close_replay:
  tool_replay_close(replay);
  return status;
}

void tool_replay_close(struct tool_replay* replay) {
  free(replay->blob);
  replay->blob = NULL;
  free(replay->host_y);
  free(replay->host_ids);
  replay->host_y = NULL;
  replay->host_ids = NULL;
  tool_session_close(&replay->session);
  tool_memory_close(&replay->memory);
}

/* Does someone look at what the source's rows become? */
static bool is_watched(const struct tool_replay* replay) {
  return replay->site->reference != NULL || replay->site->ids != NULL ||
         (replay->session.args->route_trace &&
          replay->binding.trace.ids != NULL);
}

static enum tool_status bind_plan(const struct tool_replay* replay,
                                  struct bound_plan* bound) {
  const struct tool_session* session = &replay->session;
  bound->binding = replay->binding;
  bound->binding.trace.capacity_rows =
      bound->binding.trace.ids == NULL ? 0 : bound->rows;
  const bool ragged = bound->rows < replay->source_rows &&
                      replay->source_rows % bound->rows != 0;
  if (ragged && is_watched(replay)) {
    bound->binding.live_rows = replay->live_rows;
  }
  TRY(tool_session_check(session, "create a plan",
                         moeplan_plan_create(session->planner, bound->rows,
                                             &session->options, &bound->plan)));
  if (session->options.host_dispatch) return tool_ok;
  return tool_session_check(
      session, "create a graph",
      moeplan_graph_create(bound->plan, &bound->binding, &bound->graph));
}

static enum tool_status launch(const struct tool_replay* replay,
                               const struct bound_plan* bound) {
  const cudaStream_t stream = replay->memory.stream;
  return tool_session_check(
      &replay->session, "replay a plan",
      bound->graph != NULL
          ? moeplan_graph_replay(bound->graph, stream)
          : moeplan_enqueue(bound->plan, &bound->binding, stream));
}

/* Put `live` rows of the source, from row `start` on, into x. What the plan
 * shall not look at or shall overwrite becomes NaN. */
static enum tool_status load_chunk(const struct tool_replay* replay,
                                   const struct bound_plan* bound,
                                   uint64_t start, uint32_t live) {
  const struct tool_memory* memory = &replay->memory;
  struct tool_error* error = replay->session.error;
  const size_t row_bytes = (size_t)replay->site->config.hidden_size * 2;
  const size_t chunk_bytes = bound->rows * row_bytes;
  TRY(tool_memory_fill(memory, replay->x, POISON, chunk_bytes, error));
  TRY(tool_memory_fill(memory, bound->binding.y, POISON, chunk_bytes, error));
  for (uint32_t done = 0; done < live;) {
    const uint32_t from = (uint32_t)((start + done) % replay->source_rows);
    const uint32_t rest = replay->source_rows - from;
    const uint32_t count = rest < live - done ? rest : live - done;
    TRY(tool_memory_upload(memory, (char*)replay->x + done * row_bytes,
                           replay->source + from * row_bytes, count * row_bytes,
                           error));
    done += count;
  }
  const int32_t live_rows = (int32_t)live;
  TRY(tool_memory_upload(memory, replay->live_rows, &live_rows,
                         sizeof(live_rows), error));
  if (bound->binding.trace.ids == NULL) return tool_ok;
  const uint64_t zero = 0;
  return tool_memory_upload(memory, bound->binding.trace.cursor, &zero,
                            sizeof(zero), error);
}

static enum tool_status compare_y(const struct tool_replay* replay,
                                  const struct bound_plan* bound,
                                  uint64_t start, uint32_t live,
                                  struct tool_distance* distance) {
  const struct tool_tensor* reference = replay->site->reference;
  if (reference == NULL) return tool_ok;
  const size_t hidden = replay->site->config.hidden_size;
  TRY(tool_memory_download(&replay->memory, replay->host_y, bound->binding.y,
                           live * hidden * 2, replay->session.error));
  for (size_t i = 0; i < live; i++) {
    const size_t row = (size_t)((start + i) % replay->source_rows);
    tool_distance_add(distance, replay->host_y + i * hidden,
                      reference->data + row * hidden * sizeof(float), hidden);
  }
  return tool_ok;
}

static enum tool_status trace_rows(const struct tool_replay* replay,
                                   const struct bound_plan* bound,
                                   uint32_t live, struct tool_result* result) {
  if (!replay->session.args->route_trace || bound->binding.trace.ids == NULL) {
    return tool_ok;
  }
  return tool_route_trace_add(
      &result->trace, &replay->memory, &bound->binding.trace, live,
      replay->site->config.num_experts_per_tok, replay->session.error);
}

static enum tool_status compare_ids(const struct tool_replay* replay,
                                    const struct bound_plan* bound,
                                    uint64_t start, uint32_t live,
                                    struct tool_result* result) {
  const struct tool_tensor* ids = replay->site->ids;
  const struct moeplan_trace_ring* trace = &bound->binding.trace;
  if (ids == NULL) return tool_ok;
  const uint32_t k = replay->site->config.num_experts_per_tok;
  uint64_t traced = 0;
  TRY(tool_memory_download(&replay->memory, &traced, trace->cursor,
                           sizeof(traced), replay->session.error));
  TRY(tool_memory_download(&replay->memory, replay->host_ids, trace->ids,
                           (size_t)live * k * sizeof(int32_t),
                           replay->session.error));
  for (size_t i = 0; i < live; i++) {
    const size_t row = (size_t)((start + i) % replay->source_rows);
    const bool same = traced == live &&
                      tool_ids_match(replay->host_ids + i * k,
                                     ids->data + row * k * sizeof(int32_t), k);
    result->routed_rows++;
    result->rows_differing += same ? 0 : 1;
  }
  return tool_ok;
}

static enum tool_status verify(const struct tool_replay* replay,
                               const struct bound_plan* bound,
                               struct tool_result* result) {
  if (!is_watched(replay)) return tool_ok;
  struct tool_distance distance = {0.0, 0.0};
  uint64_t start = 0;
  do {
    const uint64_t rest = replay->source_rows - start;
    const bool last = !result->repeated && rest < bound->rows;
    const uint32_t live = last ? (uint32_t)rest : bound->rows;
    TRY(load_chunk(replay, bound, start, live));
    TRY(launch(replay, bound));
    TRY(tool_memory_wait(&replay->memory, replay->session.error));
    TRY(compare_y(replay, bound, start, live, &distance));
    TRY(trace_rows(replay, bound, live, result));
    TRY(compare_ids(replay, bound, start, live, result));
    start += live;
  } while (start < replay->source_rows);
  result->has_error = replay->site->reference != NULL;
  result->error = tool_distance_relative(&distance);
  return tool_ok;
}

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return (a > b) - (a < b);
}

/* Median of as many samples as fit into a second. The first one warms up and
 * counts only if there is no other. */
static enum tool_status measure(const struct tool_replay* replay,
                                const struct bound_plan* bound,
                                double* seconds_out) {
  const uint32_t replays = replay->memory.replays_per_sample;
  double samples[MAX_SAMPLES];
  size_t count = 0;
  TRY(load_chunk(replay, bound, 0, bound->rows));
  TRY(tool_memory_wait(&replay->memory, replay->session.error));
  const double start = now_seconds();
  double end = start;
  while (count < MAX_SAMPLES && end - start < 1.0) {
    const double begin = end;
    for (uint32_t i = 0; i < replays; i++) TRY(launch(replay, bound));
    TRY(tool_memory_wait(&replay->memory, replay->session.error));
    end = now_seconds();
    samples[count] = (end - begin) / replays;
    count++;
  }
  const size_t first = count > 1 ? 1 : 0;
  qsort(samples + first, count - first, sizeof(samples[0]), compare_doubles);
  *seconds_out = samples[first + (count - first) / 2];
  return tool_ok;
}

enum tool_status tool_replay_rows(struct tool_replay* replay, uint32_t rows,
                                  struct tool_result* result_out) {
  struct bound_plan bound = {.rows = rows};
  struct tool_result result = {.site = replay->site,
                               .info = MOEPLAN_PLAN_INFO_INIT,
                               .repeated = rows > replay->source_rows};
  enum tool_status status = bind_plan(replay, &bound);
  if (status != tool_ok) goto destroy_plan;
  status = tool_session_check(&replay->session, "describe a plan",
                              moeplan_plan_info(bound.plan, &result.info));
  if (status != tool_ok) goto destroy_plan;
  status = verify(replay, &bound, &result);
  if (status != tool_ok) goto destroy_plan;
  status = measure(replay, &bound, &result.seconds);
  if (status == tool_ok) *result_out = result;
destroy_plan:
  if (status != tool_ok) tool_route_trace_free(&result.trace);
  moeplan_graph_destroy(bound.graph);
  moeplan_plan_destroy(bound.plan);
  return status;
}
