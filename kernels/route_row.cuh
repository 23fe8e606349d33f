// Routing of one row by one warp: softmax, the choice of topk experts, weights; or
// ids from outside.

#ifndef MOEPLAN_KERNELS_ROUTE_ROW_CUH_
#define MOEPLAN_KERNELS_ROUTE_ROW_CUH_

#include "kernels/args.h"

namespace moep {

// A float as an unsigned number of the same order; both zeros are one.
__device__ __forceinline__ uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// What the selection compares, as a number that is never 0.
__device__ __forceinline__ uint32_t selection_key(const moep_route_rule& rule,
                                                  const float* bias, uint32_t e,
                                                  float score) {
  return ordered(
      moep_selection_key(&rule, score, bias == nullptr ? 0.0f : bias[e]));
}

// One row's softmax, by one warp. e(logit - maximum) stays in scores.
__device__ __forceinline__ moep_softmax softmax_row(const float* logits,
                                                    uint32_t experts,
                                                    float* scores) {
  const uint32_t lane = threadIdx.x % 32;
  float best = logits[0];
  for (uint32_t e = lane; e < experts; e += 32) {
    if (logits[e] > best) best = logits[e];
  }
  for (uint32_t apart = 16; apart > 0; apart /= 2) {
    const float other = __shfl_xor_sync(~0u, best, apart);
    if (other > best) best = other;
  }
  for (uint32_t e = lane; e < experts; e += 32) {
    scores[e] = moep_exp(logits[e] - best);
  }
  __syncwarp();
  float sum = 0.0f;
  for (uint32_t e = 0; e < experts; e++) sum = __fadd_rn(sum, scores[e]);
  return {best, sum};
}

// Keys of a lane: of 384 experts, or of all.
constexpr uint32_t kFewKeys = 12, kManyKeys = MOEP_MAX_EXPERTS / 32;

// The best of a lane's keys, of the experts lane, lane + 32, ..; 0 if all are
// taken. No key of an expert is 0: -infinity is the least.
template <uint32_t kKeys>
__device__ __forceinline__ uint32_t best_of_lane(const uint32_t (&keys)[kKeys],
                                                 uint32_t experts,
                                                 uint32_t& expert) {
  uint32_t best = 0;
  expert = ~0u;
#pragma unroll
  for (uint32_t i = 0; i < kKeys; i++) {
    if (i * 32 < experts && keys[i] > best) {
      best = keys[i];
      expert = i * 32 + threadIdx.x % 32;
    }
  }
  return best;
}

// One row, by one warp: topk times the largest key, of equal ones the lowest
// expert. One lane calls picked(expert) for each.
template <uint32_t kKeys, typename Picked>
__device__ __forceinline__ void select_row_of(const moep_route_rule& rule,
                                              const float* scores,
                                              const uint32_t* keys,
                                              int32_t* ids, float* weights,
                                              Picked picked) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t own[kKeys];
#pragma unroll
  for (uint32_t i = 0; i < kKeys; i++) {
    const uint32_t e = i * 32 + lane;
    own[i] = e < rule.experts ? keys[e] : 0;
  }
  uint32_t own_expert, best = best_of_lane(own, rule.experts, own_expert);
  for (uint32_t j = 0; j < rule.topk; j++) {
    const uint32_t top = __reduce_max_sync(~0u, best);
    const uint32_t expert =
        __reduce_min_sync(~0u, best == top ? own_expert : ~0u);
    if (lane == 0) {
      ids[j] = static_cast<int32_t>(expert);
      weights[j] = scores[expert];
      picked(expert);
    }
    if (own_expert == expert) {
#pragma unroll
      for (uint32_t i = 0; i < kKeys; i++) {
        own[i] = i * 32 + lane == expert ? 0 : own[i];
      }
      best = best_of_lane(own, rule.experts, own_expert);
    }
  }
  __syncwarp();
  const float sum = moep_route_sum(&rule, weights);
  const float score = lane < rule.topk ? weights[lane] : 0.0f;
  __syncwarp();
  if (lane < rule.topk) weights[lane] = moep_route_weight(&rule, score, sum);
}

// The same, with keys for as many experts as there are.
template <typename Picked>
__device__ __forceinline__ void select_row(const moep_route_rule& rule,
                                           const float* scores,
                                           const uint32_t* keys, int32_t* ids,
                                           float* weights, Picked picked) {
  if (rule.experts <= kFewKeys * 32) {
    select_row_of<kFewKeys>(rule, scores, keys, ids, weights, picked);
  } else {
    select_row_of<kManyKeys>(rule, scores, keys, ids, weights, picked);
  }
}

// A slot that the router does not decide: routing from outside, or nothing in a dead row.
struct OutsideSlot {
  int32_t id;
  float weight;
};

__device__ __forceinline__ OutsideSlot outside_slot(const moep_route_args& args,
                                                    uint64_t slot, bool alive) {
  if (!alive || args.external_ids == nullptr) return {-1, 0.0f};
  return {args.external_ids[slot], args.external_weights[slot]};
}

// Its id and weight, of an expert that there is.
__device__ __forceinline__ void store_slot(const moep_route_args& args,
                                           const OutsideSlot& outside,
                                           int32_t* id, float* weight) {
  const bool filled =
      outside.id >= 0 && static_cast<uint32_t>(outside.id) < args.rule.experts;
  *id = filled ? outside.id : -1;
  *weight = filled ? outside.weight : 0.0f;
}

// A row that is dead or routed from outside, by one warp.
__device__ __forceinline__ void copy_row(const moep_route_args& args,
                                         uint32_t row, bool alive, int32_t* ids,
                                         float* weights) {
  const uint32_t topk = args.rule.topk;
  for (uint32_t j = threadIdx.x % 32; j < topk; j += 32) {
    const uint64_t slot = uint64_t{row} * topk + j;
    store_slot(args, outside_slot(args, slot, alive), ids + j, weights + j);
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_ROUTE_ROW_CUH_
