#define _GNU_SOURCE

#include "tools/parallel_rank.h"

#include <stdlib.h>

#include "tools/bench_fill.h"
#include "tools/parallel_graphs.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { POISON = 0xFF /* as float32 a NaN */ };

static bool draws_ids(const struct tool_parallel_rank* rank) {
  return rank->config.kind == moeplan_site_routed &&
         rank->args.bench.routing != tool_routing_router;
}

static enum tool_status allocate(struct tool_parallel_rank* rank) {
  const struct tool_parallel_run* run = rank->run;
  struct moeplan_binding* binding = &rank->binding;
  const size_t elements = (size_t)run->max_rows * run->config->hidden_size;
  const size_t slots =
      (size_t)run->sets * run->max_rows * run->config->num_experts_per_tok;
  void* block = NULL;
  *binding = (struct moeplan_binding)MOEPLAN_BINDING_INIT;
  TRY(tool_session_check(
      &rank->session, "size the workspace",
      moeplan_workspace_size(rank->session.planner, run->max_rows,
                             &rank->session.options,
                             &binding->workspace_bytes)));
  TRY(tool_memory_allocate(&rank->memory, binding->workspace_bytes,
                           &binding->workspace, &rank->error));
  TRY(tool_memory_allocate(&rank->memory, elements * sizeof(float), &binding->y,
                           &rank->error));
  TRY(tool_memory_allocate(&rank->memory, run->sets * elements * 2, &block,
                           &rank->error));
  rank->x = block;
  TRY(tool_memory_allocate(&rank->memory, slots * sizeof(int32_t), &block,
                           &rank->error));
  rank->ids = block;
  TRY(tool_memory_allocate(&rank->memory, slots * sizeof(float), &block,
                           &rank->error));
  rank->weights = block;
  return tool_bench_fill(&rank->memory, rank->x, run->sets * elements * 2,
                         tool_words_bf16_x, UINT64_C(1) << 60, &rank->error);
}

/* Every rank draws the same ids. */
static enum tool_status draw_ids(const struct tool_parallel_rank* rank,
                                 uint32_t rows) {
  const struct tool_parallel_run* run = rank->run;
  struct tool_error* error = rank->session.error;
  const size_t slots = (size_t)rows * run->config->num_experts_per_tok;
  if (!draws_ids(rank)) return tool_ok;
  int32_t* ids = calloc(slots, sizeof(*ids));
  float* weights = calloc(slots, sizeof(*weights));
  enum tool_status status = tool_ok;
  if (ids == NULL || weights == NULL) {
    status = tool_fail(error, "cannot draw %zu ids: out of host memory", slots);
  }
  for (uint32_t set = 0; set < run->sets && status == tool_ok; set++) {
    const struct tool_draw draw = {
        .routing = rank->args.bench.routing,
        .rows = rows,
        .experts = run->config->n_routed_experts,
        .k = run->config->num_experts_per_tok,
        .set = set,
    };
    const size_t offset = set * slots * sizeof(int32_t);
    tool_routing_draw(&draw, ids, weights);
    status = tool_memory_upload(&rank->memory, rank->ids + offset, ids,
                                slots * sizeof(*ids), error);
    if (status != tool_ok) break;
    status = tool_memory_upload(&rank->memory, rank->weights + offset, weights,
                                slots * sizeof(*weights), error);
  }
  free(ids);
  free(weights);
  return status;
}

static struct moeplan_binding bind_set(const struct tool_parallel_rank* rank,
                                       uint32_t rows, uint32_t set) {
  const struct tool_parallel_run* run = rank->run;
  const size_t row_bytes = (size_t)run->config->hidden_size * 2;
  struct moeplan_binding binding = rank->binding;
  binding.site = rank->site.blobs[set % rank->site.copies];
  binding.host_site = rank->site.host_blobs[set % rank->site.copies];
  binding.x = rank->x + (size_t)set * run->max_rows * row_bytes;
  if (draws_ids(rank)) {
    const size_t offset =
        (size_t)set * rows * run->config->num_experts_per_tok * sizeof(int32_t);
    binding.topk_ids = (const void*)(rank->ids + offset);
    binding.topk_weights = (const void*)(rank->weights + offset);
  }
  return binding;
}

/* Every set once, over poison, y to the host. */
static enum tool_status keep_outputs(struct tool_parallel_rank* rank,
                                     const struct tool_parallel_graphs* graphs,
                                     struct tool_parallel_result* result) {
  const struct tool_parallel_run* run = rank->run;
  struct tool_error* error = &rank->error;
  const size_t count = (size_t)result->info.rows * run->config->hidden_size;
  for (uint32_t set = 0; set < run->sets; set++) {
    TRY(tool_memory_fill(&rank->memory, rank->binding.y, POISON,
                         count * sizeof(float), error));
    TRY(tool_parallel_graphs_replay(graphs, tool_parallel_both, set));
    TRY(tool_memory_wait(&rank->memory, error));
    TRY(tool_memory_download(&rank->memory, result->y + set * count,
                             rank->binding.y, count * sizeof(float), error));
  }
  return tool_ok;
}

static enum tool_status make_graphs(struct tool_parallel_rank* rank,
                                    moeplan_plan_t plan,
                                    struct tool_parallel_graphs* graphs,
                                    uint32_t rows) {
  for (uint32_t set = 0; set < rank->run->sets; set++) {
    const struct moeplan_binding binding = bind_set(rank, rows, set);
    TRY(tool_parallel_graphs_add(graphs, plan, &binding, rows));
  }
  return tool_ok;
}

/* Each step ends at the gate: no rank enters a collective that another will not
 * come to. */
static enum tool_status run_plan(struct tool_parallel_rank* rank,
                                 moeplan_plan_t plan,
                                 struct tool_parallel_graphs* graphs,
                                 struct tool_parallel_result* result) {
  struct tool_gate* gate = rank->run->gate;
  const uint32_t rows = result->info.rows;
  TRY(tool_gate_pass(gate, tool_parallel_graphs_connect(graphs)));
  TRY(tool_gate_pass(gate, make_graphs(rank, plan, graphs, rows)));
  TRY(tool_gate_pass(gate, keep_outputs(rank, graphs, result)));
  for (int i = 0; i < TOOL_PARALLEL_GRAPHS; i++) {
    TRY(tool_parallel_graphs_time(graphs, (enum tool_parallel_graph)i,
                                  &result->time[i]));
  }
  return tool_ok;
}

static enum tool_status create_plan(struct tool_parallel_rank* rank,
                                    uint32_t rows,
                                    struct tool_parallel_result* result,
                                    moeplan_plan_t* plan_out) {
  const size_t count =
      (size_t)rank->run->sets * rows * rank->run->config->hidden_size;
  result->info = (struct moeplan_plan_info)MOEPLAN_PLAN_INFO_INIT;
  result->y = calloc(count, sizeof(*result->y));
  if (result->y == NULL) {
    return tool_fail(&rank->error, "cannot hold %u rows: out of host memory",
                     rows);
  }
  TRY(draw_ids(rank, rows));
  TRY(tool_session_check(
      &rank->session, "create a plan",
      moeplan_plan_create(rank->session.planner, rows, &rank->session.options,
                          plan_out)));
  return tool_session_check(&rank->session, "describe a plan",
                            moeplan_plan_info(*plan_out, &result->info));
}

static enum tool_status run_rows(struct tool_parallel_rank* rank, uint32_t rows,
                                 struct tool_parallel_result* result) {
  moeplan_plan_t plan = NULL;
  struct tool_parallel_graphs graphs = {.rank = rank};
  enum tool_status status =
      tool_gate_pass(rank->run->gate, create_plan(rank, rows, result, &plan));
  if (status == tool_ok) status = run_plan(rank, plan, &graphs, result);
  tool_parallel_graphs_destroy(&graphs);
  moeplan_plan_destroy(plan);
  return status;
}

static enum tool_status open_rank(struct tool_parallel_rank* rank) {
  const struct tool_parallel_run* run = rank->run;
  TRY(tool_memory_open(rank->device, &rank->memory, &rank->error));
  TRY(tool_session_open(&rank->session, &rank->args, &rank->config,
                        run->max_rows, &rank->error));
  rank->session.options.y_type = moeplan_dtype_f32;
  TRY(tool_bench_site_place(&rank->session, run->config, &rank->rank,
                            &rank->memory, run->copies, &rank->site));
  TRY(allocate(rank));
  return tool_memory_wait(&rank->memory, &rank->error);
}

void tool_parallel_rank_run(struct tool_parallel_rank* rank) {
  const struct tool_parallel_run* run = rank->run;
  rank->args = *run->args;
  rank->args.device = rank->device;
  tool_rank_config(&rank->rank, run->config, &rank->config);
  rank->status = tool_gate_pass(run->gate, open_rank(rank));
  for (size_t i = 0; i < run->args->num_rows && rank->status == tool_ok; i++) {
    rank->status = run_rows(rank, run->args->rows[i], &rank->results[i]);
  }
  tool_bench_site_free(&rank->site);
  tool_session_close(&rank->session);
  tool_memory_close(&rank->memory);
}

void tool_parallel_rank_free(struct tool_parallel_rank* rank) {
  for (size_t i = 0; i < TOOL_MAX_ROW_COUNTS; i++) free(rank->results[i].y);
}
