#include <stdlib.h>
#include <string.h>

#include "lib/binding.h"
#include "lib/enqueue.h"
#include "lib/host_dispatch.h"
#include "tests/harness.h"

enum { GUARD = 4096, GUARD_BYTE = 0xA5, TAPS = 5 };

/* Memory between two guards. */
struct guarded {
  uint8_t* base;
  uint8_t* data;
  size_t bytes;
};

static struct guarded guarded_make(size_t bytes, uint8_t fill) {
  const size_t total = (bytes + 2 * GUARD + 255) / 256 * 256;
  struct guarded g = {.base = aligned_alloc(256, total), .bytes = bytes};
  if (g.base == NULL) abort();
  memset(g.base, GUARD_BYTE, total);
  g.data = g.base + GUARD;
  memset(g.data, fill, bytes);
  return g;
}

static bool guarded_intact(const struct guarded* g) {
  for (size_t i = 0; i < GUARD; i++) {
    if (g->base[i] != GUARD_BYTE || g->data[g->bytes + i] != GUARD_BYTE) {
      return false;
    }
  }
  return true;
}

struct harness_run harness_rows(uint32_t first_row, uint32_t rows) {
  const struct harness_run run = {.rows = rows,
                                  .first_row = first_row,
                                  .way = harness_way_tap,
                                  .live_rows = -1,
                                  .poison = 0xFF};
  return run;
}

static float* poisoned(size_t bytes, uint8_t poison) {
  float* memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == NULL) abort();
  memset(memory, poison, bytes);
  return memory;
}

/* The tap's members, in order. */
static void tap_members(struct moep_tap* tap, float** members[TAPS]) {
  members[0] = &tap->logits;
  members[1] = &tap->expert_up;
  members[2] = &tap->expert_down;
  members[3] = &tap->ffn_up;
  members[4] = &tap->ffn_down;
}

static void result_allocate(const struct harness* h,
                            const struct harness_run* run,
                            struct harness_result* result) {
  const struct moeplan_config* c = &h->config;
  const bool dense = c->kind == moeplan_site_dense;
  const size_t hidden = c->hidden_size;
  const size_t width =
      dense ? c->dense_local_intermediate : c->shared_local_intermediate;
  const size_t topk = dense ? 0 : c->num_experts_per_tok;
  const size_t row_elements[TAPS] = {
      dense ? 0 : c->n_routed_experts,
      topk * 2 * c->moe_intermediate_size,
      topk * hidden,
      2 * width,
      width == 0 ? 0 : hidden,
  };
  result->rows = run->rows;
  result->y_bytes =
      run->options != NULL && run->options->y_type == moeplan_dtype_f32 ? 4 : 2;
  result->ids = (int32_t*)poisoned(run->rows * topk * 4, run->poison);
  result->weights = poisoned(run->rows * topk * 4, run->poison);
  if (run->way != harness_way_tap) return;
  float** members[TAPS];
  tap_members(&result->tap, members);
  for (int i = 0; i < TAPS; i++) {
    result->tap_bytes[i] = row_elements[i] * sizeof(float);
    *members[i] = poisoned(run->rows * result->tap_bytes[i], run->poison);
  }
}

void harness_result_free(struct harness_result* result) {
  float** members[TAPS];
  tap_members(&result->tap, members);
  for (int i = 0; i < TAPS; i++) free(*members[i]);
  free(result->y);
  free(result->ids);
  free(result->weights);
  *result = (struct harness_result){0};
}

static enum moeplan_status run_graph(moeplan_plan_t plan,
                                     const struct moeplan_binding* binding,
                                     uint64_t* cursor) {
  moeplan_graph_t graph;
  MOEP_TRY(moeplan_graph_create(plan, binding, &graph));
  enum moeplan_status status = moeplan_graph_replay(graph, NULL);
  if (status == moeplan_status_success && binding->x != binding->y) {
    *cursor = 0; /* the second replay writes the same rows again */
    status = moeplan_graph_replay(graph, NULL);
  }
  moeplan_graph_destroy(graph);
  return status;
}

static enum moeplan_status run_way(moeplan_plan_t plan,
                                   const struct moeplan_binding* binding,
                                   const struct harness_run* run,
                                   struct harness_result* result) {
  struct moeplan_binding checked;
  switch (run->way) {
    case harness_way_enqueue:
      return moeplan_enqueue(plan, binding, NULL);
    case harness_way_graph:
      return run_graph(plan, binding, &result->traced);
    case harness_way_tap:
      MOEP_TRY(moep_binding_read(plan, binding, &checked));
      return plan->options.host_dispatch
                 ? moep_host_dispatch(plan, &checked, &result->tap, NULL)
                 : moep_enqueue_nodes(plan, &checked, &result->tap, NULL);
  }
  return moeplan_status_internal_error;
}

static enum moeplan_status run_bound(struct harness* h, moeplan_plan_t plan,
                                     const struct harness_run* run,
                                     struct harness_result* result) {
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  MOEP_TRY(moeplan_plan_info(plan, &info));
  const size_t elements = (size_t)run->rows * h->config.hidden_size;
  const uint16_t* x = h->x + (size_t)run->first_row * h->config.hidden_size;
  struct guarded workspace = guarded_make(info.workspace_bytes, run->poison);
  struct guarded inputs = guarded_make(elements * 2, 0);
  struct guarded outputs =
      guarded_make(elements * result->y_bytes, run->poison);
  memcpy(inputs.data, x, elements * 2);

  struct moeplan_binding binding = MOEPLAN_BINDING_INIT;
  binding.site = h->blob;
  binding.x = inputs.data;
  binding.y = run->in_place ? inputs.data : outputs.data;
  binding.workspace = workspace.data;
  binding.workspace_bytes = info.workspace_bytes;
  binding.live_rows = run->live_rows < 0 ? NULL : &run->live_rows;
  binding.topk_ids = run->topk_ids;
  binding.topk_weights = run->topk_weights;
  if (h->config.kind == moeplan_site_routed) {
    binding.trace = (struct moeplan_trace_ring){result->ids, result->weights,
                                                &result->traced, run->rows};
  }
  const enum moeplan_status status = run_way(plan, &binding, run, result);
  result->guards_intact =
      guarded_intact(&workspace) && guarded_intact(&inputs) &&
      guarded_intact(&outputs) &&
      (run->in_place || memcmp(inputs.data, x, elements * 2) == 0);
  result->y = malloc(elements * result->y_bytes);
  if (result->y == NULL) abort();
  memcpy(result->y, run->in_place ? inputs.data : outputs.data,
         elements * result->y_bytes);
  free(workspace.base);
  free(inputs.base);
  free(outputs.base);
  return status;
}

struct harness_result harness_run_plan(struct harness* h,
                                       const struct harness_run* run) {
  struct harness_result result = {0};
  moeplan_plan_t plan;
  result.status =
      moeplan_plan_create(h->planner, run->rows, run->options, &plan);
  if (result.status != moeplan_status_success) return result;
  result_allocate(h, run, &result);
  result.status = run_bound(h, plan, run, &result);
  moeplan_plan_destroy(plan);
  return result;
}

const char* harness_row_difference(const struct harness* h,
                                   const struct harness_result* first,
                                   uint32_t a,
                                   const struct harness_result* second,
                                   uint32_t b) {
  static const char* const names[TAPS] = {"logits", "expert_up", "expert_down",
                                          "ffn_up", "ffn_down"};
  const size_t topk =
      h->config.kind == moeplan_site_dense ? 0 : h->config.num_experts_per_tok;
  struct moep_tap taps[2] = {first->tap, second->tap};
  float** members[2][TAPS];
  tap_members(&taps[0], members[0]);
  tap_members(&taps[1], members[1]);
  for (int i = 0; i < TAPS; i++) {
    const size_t bytes = first->tap_bytes[i];
    if (*members[0][i] == NULL || *members[1][i] == NULL) continue;
    if (memcmp((char*)*members[0][i] + a * bytes,
               (char*)*members[1][i] + b * bytes, bytes) != 0) {
      return names[i];
    }
  }
  if (memcmp(first->ids + a * topk, second->ids + b * topk, topk * 4) != 0) {
    return "ids";
  }
  if (memcmp(first->weights + a * topk, second->weights + b * topk, topk * 4) !=
      0) {
    return "weights";
  }
  const size_t row = (size_t)h->config.hidden_size * first->y_bytes;
  return memcmp(first->y + a * row, second->y + b * row, row) != 0 ? "y" : NULL;
}
