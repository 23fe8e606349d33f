/* route: scores, top-k and weights of each row, or ids from outside. */

#include "kernels/host/route_f32_host.h"

#include "kernels/host/parallel.h"
#include "kernels/kernels.h"

static struct moep_softmax softmax_row(const float* logits, uint32_t experts) {
  struct moep_softmax row = {logits[0], 0.0f};
  for (uint32_t e = 1; e < experts; e++) {
    if (logits[e] > row.maximum) row.maximum = logits[e];
  }
  for (uint32_t e = 0; e < experts; e++) {
    row.sum = row.sum + moep_exp(logits[e] - row.maximum);
  }
  return row;
}

/* The topk best experts, by insertion into a short descending list. */
static void select_experts(const struct moep_route_args* args,
                           const float* logits, int32_t* ids, float* scores) {
  const struct moep_route_rule* rule = &args->rule;
  const float* bias = args->site->bias;
  struct moep_softmax softmax = {0.0f, 0.0f};
  if (rule->scoring == moep_scoring_softmax) {
    softmax = softmax_row(logits, rule->experts);
  }
  float keys[MOEP_MAX_TOPK];
  uint32_t held = 0;
  for (uint32_t e = 0; e < rule->experts; e++) {
    const float score = moep_score(rule, logits[e], &softmax);
    const float key =
        moep_selection_key(rule, score, bias == NULL ? 0.0f : bias[e]);
    uint32_t at = held < rule->topk ? held++ : rule->topk;
    if (at == rule->topk) {
      /* topk is at least 1, so keys[at - 1] was set. */
      /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
      if (!moep_selected_before(key, e, keys[at - 1], (uint32_t)ids[at - 1])) {
        continue;
      }
      at--;
    }
    while (at > 0 &&
           moep_selected_before(key, e, keys[at - 1], (uint32_t)ids[at - 1])) {
      keys[at] = keys[at - 1];
      ids[at] = ids[at - 1];
      scores[at] = scores[at - 1];
      at--;
    }
    keys[at] = key;
    ids[at] = (int32_t)e;
    scores[at] = score;
  }
}

static void copy_external(const struct moep_route_args* args, uint64_t slot0,
                          int32_t* ids, float* weights) {
  for (uint32_t j = 0; j < args->rule.topk; j++) {
    const int32_t id = args->external_ids[slot0 + j];
    const bool filled = id >= 0 && (uint32_t)id < args->rule.experts;
    ids[j] = filled ? id : -1;
    weights[j] = filled ? args->external_weights[slot0 + j] : 0.0f;
  }
}

static void route_row(const void* context, uint32_t item) {
  const struct moep_route_args* args = context;
  const uint32_t topk = args->rule.topk;
  const uint32_t row = args->rows.begin + item;
  const uint64_t slot0 = (uint64_t)row * topk;
  int32_t* ids = args->ids + slot0;
  float* weights = args->weights + slot0;
  if (row >= moep_live_rows(args->rows.live_rows, args->rows.total)) {
    for (uint32_t j = 0; j < topk; j++) {
      ids[j] = -1;
      weights[j] = 0.0f;
    }
    return;
  }
  if (args->external_ids != NULL) {
    copy_external(args, slot0, ids, weights);
  } else {
    select_experts(args, args->logits + (uint64_t)row * args->rule.experts, ids,
                   weights);
    const float sum = moep_route_sum(&args->rule, weights);
    for (uint32_t j = 0; j < topk; j++) {
      weights[j] = moep_route_weight(&args->rule, weights[j], sum);
    }
  }
  if (args->trace.cursor == NULL) return;
  const uint64_t at = (*args->trace.cursor + item) % args->trace.capacity;
  memcpy(args->trace.ids + at * topk, ids, topk * sizeof(*ids));
  memcpy(args->trace.weights + at * topk, weights, topk * sizeof(*weights));
}

void moep_host_route(const struct moep_route_args* args) {
  moep_parallel(args->rows.count, 0, 1, route_row, args);
}

void moep_host_trace_advance(uint64_t* cursor, const struct moep_rows* rows) {
  if (cursor == NULL) return;
  *cursor += moep_rows_alive(rows);
}

cudaError_t moep_route_f32_host(const union moep_args* args,
                                const struct moep_launch* launch,
                                cudaStream_t stream) {
  (void)launch, (void)stream;
  moep_host_route(&args->route);
  return cudaSuccess;
}
