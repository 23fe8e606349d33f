#define _GNU_SOURCE

#include "tools/parallel_graphs.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { MAX_BATCHES = 200, MIN_BATCHES = 5, WARM_BATCHES = 3 };

/* About this long between the events of a batch. */
static const double batch_seconds = 0.02;

/* Whether the rank has a graph of this kind. */
static bool has(const struct tool_parallel_rank* rank,
                enum tool_parallel_graph graph) {
  return rank->memory.stream != NULL &&
         (graph == tool_parallel_plan || rank->run->nccl != NULL);
}

static enum tool_status add_up(const struct tool_parallel_rank* rank,
                               const struct moeplan_binding* binding,
                               uint32_t rows) {
  return tool_nccl_add_up(rank->run->nccl, rank->rank.index, binding->y,
                          (size_t)rows * rank->run->config->hidden_size,
                          rank->memory.stream, rank->session.error);
}

enum tool_status tool_parallel_graphs_connect(
    const struct tool_parallel_graphs* graphs) {
  struct tool_parallel_rank* rank = graphs->rank;
  if (!has(rank, tool_parallel_addition)) return tool_ok;
  TRY(add_up(rank, &rank->binding, 1));
  return tool_memory_wait(&rank->memory, &rank->error);
}

/* What the graph holds, onto the stream. */
static enum tool_status enqueue(const struct tool_parallel_rank* rank,
                                const struct tool_parallel_set* set,
                                enum tool_parallel_graph graph, uint32_t rows) {
  if (graph != tool_parallel_addition) {
    TRY(tool_session_check(
        &rank->session, "run a plan",
        moeplan_enqueue(set->plan, &set->binding, rank->memory.stream)));
  }
  return graph == tool_parallel_plan ? tool_ok
                                     : add_up(rank, &set->binding, rows);
}

static enum tool_status capture(struct tool_parallel_rank* rank,
                                struct tool_parallel_set* set,
                                enum tool_parallel_graph graph, uint32_t rows) {
  cudaStream_t stream = rank->memory.stream;
  cudaGraph_t captured = NULL;
  TRY(tool_cuda_try(
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
      "begin a capture", &rank->error));
  enum tool_status status = enqueue(rank, set, graph, rows);
  const enum tool_status ended = tool_cuda_try(
      cudaStreamEndCapture(stream, &captured), "end a capture", &rank->error);
  if (status == tool_ok) status = ended;
  if (status == tool_ok) {
    status =
        tool_cuda_try(cudaGraphInstantiate(&set->graphs[graph], captured, 0),
                      "instantiate a graph", &rank->error);
  }
  if (captured != NULL) cudaGraphDestroy(captured);
  return status;
}

enum tool_status tool_parallel_graphs_add(struct tool_parallel_graphs* graphs,
                                          moeplan_plan_t plan,
                                          const struct moeplan_binding* binding,
                                          uint32_t rows) {
  struct tool_parallel_set* set = &graphs->all[graphs->sets];
  *set = (struct tool_parallel_set){.plan = plan, .binding = *binding};
  graphs->sets++;
  for (int i = 0; i < TOOL_PARALLEL_GRAPHS; i++) {
    const enum tool_parallel_graph graph = (enum tool_parallel_graph)i;
    if (has(graphs->rank, graph)) {
      TRY(capture(graphs->rank, set, graph, rows));
    }
  }
  return tool_ok;
}

enum tool_status tool_parallel_graphs_replay(
    const struct tool_parallel_graphs* graphs, enum tool_parallel_graph graph,
    uint32_t set) {
  const struct tool_parallel_rank* rank = graphs->rank;
  const struct tool_parallel_set* at = &graphs->all[set];
  if (rank->memory.stream == NULL) {
    return enqueue(rank, at, tool_parallel_plan, 0);
  }
  const enum tool_parallel_graph there =
      has(rank, graph) ? graph : tool_parallel_plan;
  return tool_cuda_try(cudaGraphLaunch(at->graphs[there], rank->memory.stream),
                       "replay a graph", rank->session.error);
}

static enum tool_status run_batch(const struct tool_parallel_graphs* graphs,
                                  enum tool_parallel_graph graph,
                                  struct tool_stopwatch* watch, uint32_t rounds,
                                  double* seconds_out) {
  TRY(tool_stopwatch_start(watch));
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t set = 0; set < graphs->sets; set++) {
      TRY(tool_parallel_graphs_replay(graphs, graph, set));
    }
  }
  return tool_stopwatch_stop(watch, seconds_out);
}

/* Begins together and ends together. */
static enum tool_status time_batch(const struct tool_parallel_graphs* graphs,
                                   enum tool_parallel_graph graph,
                                   struct tool_stopwatch* watch,
                                   uint32_t rounds, double* seconds_out) {
  struct tool_gate* gate = graphs->rank->run->gate;
  TRY(tool_gate_pass(gate, tool_ok));
  return tool_gate_pass(gate,
                        run_batch(graphs, graph, watch, rounds, seconds_out));
}

/* Rank 0's measure of one round decides for all. */
static void choose_batches(const struct tool_parallel_run* run,
                           double round_seconds) {
  const double round = round_seconds > 1e-6 ? round_seconds : 1e-6;
  const double rounds = batch_seconds / round;
  run->gate->rounds = rounds > 1000.0 ? 1000
                      : rounds > 1.0  ? (uint32_t)rounds
                                      : 1;
  const double batches = run->seconds / (run->gate->rounds * round);
  run->gate->batches = batches > MAX_BATCHES   ? MAX_BATCHES
                       : batches > MIN_BATCHES ? (uint32_t)batches
                                               : MIN_BATCHES;
}

static enum tool_status time_batches(const struct tool_parallel_graphs* graphs,
                                     enum tool_parallel_graph graph,
                                     struct tool_stopwatch* watch,
                                     struct tool_spread* spread_out) {
  const struct tool_parallel_rank* rank = graphs->rank;
  struct tool_gate* gate = rank->run->gate;
  double samples[MAX_BATCHES];
  double seconds = 0.0;
  TRY(time_batch(graphs, graph, watch, 1, &seconds));
  TRY(time_batch(graphs, graph, watch, 1, &seconds));
  if (rank->rank.index == 0) choose_batches(rank->run, seconds);
  TRY(tool_gate_pass(gate, tool_ok));
  const uint32_t rounds = gate->rounds, batches = gate->batches;
  for (int i = 0; i < WARM_BATCHES; i++) {
    TRY(time_batch(graphs, graph, watch, rounds, &seconds));
  }
  for (uint32_t i = 0; i < batches; i++) {
    TRY(time_batch(graphs, graph, watch, rounds, &samples[i]));
    samples[i] /= (double)rounds * graphs->sets;
  }
  *spread_out = tool_spread_of(samples, batches);
  return tool_ok;
}

enum tool_status tool_parallel_graphs_time(
    const struct tool_parallel_graphs* graphs, enum tool_parallel_graph graph,
    struct tool_spread* spread_out) {
  struct tool_parallel_rank* rank = graphs->rank;
  struct tool_stopwatch watch;
  if (!has(rank, graph) || rank->run->seconds == 0.0) return tool_ok;
  TRY(tool_gate_pass(rank->run->gate,
                     tool_stopwatch_open(&watch, &rank->memory, &rank->error)));
  const enum tool_status status =
      time_batches(graphs, graph, &watch, spread_out);
  tool_stopwatch_close(&watch);
  return status;
}

void tool_parallel_graphs_destroy(struct tool_parallel_graphs* graphs) {
  for (uint32_t set = 0; set < graphs->sets; set++) {
    for (int i = 0; i < TOOL_PARALLEL_GRAPHS; i++) {
      cudaGraphExec_t graph = graphs->all[set].graphs[i];
      if (graph != NULL) cudaGraphExecDestroy(graph);
    }
  }
}
