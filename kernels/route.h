/* Routing scalars of one row: scores, the order of selection, the weights. */

#ifndef MOEPLAN_KERNELS_ROUTE_H_
#define MOEPLAN_KERNELS_ROUTE_H_

#include <stdbool.h>

#include "kernels/scalar.h"

enum { MOEP_MAX_TOPK = 32, MOEP_MAX_EXPERTS = 1024 };

enum moep_scoring { moep_scoring_sigmoid = 0, moep_scoring_softmax = 1 };

/* How one site routes. `ladder` rounds s, s + bias, each running sum, the
 * quotient and the scaled weight to bf16; logits stay float32. */
struct moep_route_rule {
  uint32_t experts;
  uint32_t topk;
  uint32_t scoring; /* enum moep_scoring */
  uint32_t norm_topk;
  uint32_t ladder;
  float scale; /* routed_scaling_factor */
};

MOEP_INLINE float moep_ladder(const struct moep_route_rule* rule, float value) {
  return rule->ladder != 0 ? moep_bf16_round(value) : value;
}

/* What softmax subtracts and divides by. */
struct moep_softmax {
  float maximum; /* NaN if the first logit is; other NaN are passed over */
  float sum;     /* of e(logit - maximum), in expert order */
};

/* s[e]. `row` is read by softmax only. */
MOEP_INLINE float moep_score(const struct moep_route_rule* rule, float logit,
                             const struct moep_softmax* row) {
  const float s = rule->scoring == moep_scoring_sigmoid
                      ? moep_sigmoid(logit)
                      : moep_exp(logit - row->maximum) / row->sum;
  return moep_ladder(rule, s);
}

/* What the selection compares: s + bias, NaN as -infinity. */
MOEP_INLINE float moep_selection_key(const struct moep_route_rule* rule,
                                     float score, float bias) {
  const float key = moep_ladder(rule, score + bias);
  return key == key ? key : moep_float_from_bits(0xFF800000u);
}

/* Descending key, then ascending expert. A total order on distinct experts. */
MOEP_INLINE bool moep_selected_before(float key_a, uint32_t expert_a,
                                      float key_b, uint32_t expert_b) {
  return key_a > key_b || (key_a == key_b && expert_a < expert_b);
}

/* What norm_topk_prob divides by: the selected scores, added in slot order. */
MOEP_INLINE float moep_route_sum(const struct moep_route_rule* rule,
                                 const float* scores) {
  float sum = 0.0f;
  for (uint32_t j = 0; j < rule->topk; j++) {
    sum = moep_ladder(rule, sum + scores[j]);
  }
  return sum + 1e-20f;
}

/* w of one slot; `sum` is read with norm_topk_prob only. */
MOEP_INLINE float moep_route_weight(const struct moep_route_rule* rule,
                                    float score, float sum) {
  const float w = rule->norm_topk != 0 ? moep_ladder(rule, score / sum) : score;
  return moep_f32_stored(moep_ladder(rule, w * rule->scale));
}

/* Rows of `total` that are alive: *live_rows clamped, or all. */
MOEP_INLINE uint32_t moep_live_rows(const int32_t* live_rows, uint32_t total) {
  if (live_rows == NULL) return total;
  const int32_t live = *live_rows;
  if (live <= 0) return 0;
  return (uint32_t)live < total ? (uint32_t)live : total;
}

#endif /* MOEPLAN_KERNELS_ROUTE_H_ */
