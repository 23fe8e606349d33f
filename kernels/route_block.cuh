// Routing of one group of at most 8 rows by one block, into shared memory: top-k
// and weights of each row (a warp a row), then the union of the rows' experts.
// Every block of the grid does this for itself, from the logits of all.

#ifndef MOEPLAN_KERNELS_ROUTE_BLOCK_CUH_
#define MOEPLAN_KERNELS_ROUTE_BLOCK_CUH_

#include "kernels/ptx_sm80.cuh"
#include "kernels/quotient.cuh"
#include "kernels/route_row.cuh"
#include "kernels/union.h"

namespace moep {

struct RouteShared {
  int32_t ids[MOEP_UNION_ENTRIES];    // [rows, topk]; -1: unfilled
  float weights[MOEP_UNION_ENTRIES];  // [rows, topk]
  uint32_t keys[MOEP_UNION_ENTRIES];  // of the union: id, occurrence in its row
  uint32_t firsts[2];                 // bit: a slot that opens an entry
  int32_t slot[MOEP_UNION_ENTRIES * MOEP_UNION_ROWS];
  moep_softmax softmax[MOEP_UNION_ROWS];
};

// Scores and selection keys of a group, [rows, experts] each, in shared memory.
struct RouteScratch {
  float* scores;
  uint32_t* keys;
};

// Scores and keys of every row that the router decides.
__device__ __forceinline__ void score_block(const moep_route_args& args,
                                            uint32_t rows,
                                            const RouteScratch& scratch,
                                            moep_softmax* softmax) {
  const moep_route_rule& rule = args.rule;
  const float* logits = args.logits + uint64_t{args.rows.begin} * rule.experts;
  const float* bias = args.site->bias;
  const uint32_t warp = threadIdx.x / 32;
  if (rule.scoring == moep_scoring_softmax) {
    for (uint32_t r = warp; r < rows; r += blockDim.x / 32) {
      softmax[r] = softmax_row(logits + r * rule.experts, rule.experts,
                               scratch.scores + r * rule.experts);
    }
    __syncthreads();
  }
  for (uint32_t i = threadIdx.x; i < rows * rule.experts; i += blockDim.x) {
    const uint32_t r = i / rule.experts, e = i - r * rule.experts;
    const float score = moep_score(&rule, logits[i], softmax + r);
    scratch.scores[i] = score;
    scratch.keys[i] = selection_key(rule, bias, e, score);
  }
  __syncthreads();
}

// Of threads 0..63: how many before this one have `flag`. Leaves the flags as
// bits in shared[2], which nobody reads before. All threads of the block call.
__device__ __forceinline__ uint32_t count_before(bool flag, uint32_t* shared) {
  const uint32_t s = threadIdx.x;
  const uint32_t bits = __ballot_sync(~0u, flag);
  if (s == 0) shared[0] = bits;
  if (s == 32) shared[1] = bits;
  __syncthreads();
  const uint32_t own = __popc(bits & ((1u << s % 32) - 1));
  return s < 32 ? own : __popc(shared[0]) + own;
}

constexpr uint32_t kNoEntry = ~0u;

// The union of ids [rows, topk], as moep_union_build has it. An entry is an
// expert and an occurrence within the row: 0 but where outside routing repeats
// an id. Returns the entry that the thread's slot opens, or kNoEntry. All threads of
// the block call; needs 64. Ends without a barrier.
__device__ __forceinline__ uint32_t union_block(uint32_t rows, uint32_t topk,
                                                RouteShared& shared) {
  const uint32_t s = threadIdx.x, slots = rows * topk;
  const uint32_t row = small_quotient(s, topk);
  for (uint32_t i = s; i < MOEP_UNION_ENTRIES * MOEP_UNION_ROWS;
       i += blockDim.x) {
    shared.slot[i] = -1;
  }
  if (s < MOEP_UNION_ENTRIES) {
    uint32_t key = kNoEntry;
    if (s < slots && shared.ids[s] >= 0) {
      uint32_t occurrence = 0;
      for (uint32_t i = row * topk; i < s; i++) {
        occurrence += shared.ids[i] == shared.ids[s] ? 1 : 0;
      }
      key = static_cast<uint32_t>(shared.ids[s]) | occurrence << 16;
    }
    shared.keys[s] = key;
  }
  __syncthreads();
  uint32_t first = s;  // the first slot with this key
  if (s < MOEP_UNION_ENTRIES) {
    const uint32_t key = shared.keys[s];
#pragma unroll 8
    for (uint32_t i = 0; i < slots; i++) {
      if (shared.keys[i] == key && i < first) first = i;
    }
  }
  // Entries are numbered by their first slots.
  const bool filled = s < MOEP_UNION_ENTRIES && shared.keys[s] != kNoEntry;
  count_before(filled && first == s, shared.firsts);
  if (!filled) return kNoEntry;
  const uint32_t below = shared.firsts[first / 32] & ((1u << first % 32) - 1);
  const uint32_t u =
      __popc(below) + (first < 32 ? 0 : __popc(shared.firsts[0]));
  shared.slot[u * MOEP_UNION_ROWS + row] = static_cast<int32_t>(s - row * topk);
  return first == s ? u : kNoEntry;
}

// Bring the table of experts into the L2 before the ids are known.
__device__ __forceinline__ void prefetch_site(const moep_site_table* site,
                                              uint32_t experts) {
  const uint32_t bytes = moep_site_plain_bytes(experts);
  for (uint32_t at = threadIdx.x * 128; at < bytes; at += blockDim.x * 128) {
    prefetch_global_l2(reinterpret_cast<const uint8_t*>(site) + at);
  }
}

// An expert's place in the table, looked up when all rows are routed.
__device__ __forceinline__ void prefetch_expert(const moep_site_table* site,
                                                uint32_t expert) {
  const uint8_t* from =
      reinterpret_cast<const uint8_t*>(site->experts + expert);
  prefetch_global_l1(from);
  prefetch_global_l1(from + sizeof(moep_expert) - 1);
}

// ids and weights of the whole group, `outside` those of the thread's slot if the router
// does not decide them. `memory`: rows x experts x 8 bytes of shared
// memory that nothing else uses meanwhile. All threads of the block call.
__device__ __forceinline__ void route_block(const moep_route_args& args,
                                            const OutsideSlot& outside,
                                            uint8_t* memory,
                                            RouteShared& shared) {
  const uint32_t topk = args.rule.topk, count = args.rows.count;
  const uint32_t alive = moep_rows_alive(&args.rows);
  const bool routed = args.external_ids == nullptr;
  float* scores = reinterpret_cast<float*>(memory);
  const RouteScratch scratch = {
      scores, reinterpret_cast<uint32_t*>(scores + count * args.rule.experts)};
  if (routed) {
    score_block(args, alive, scratch, shared.softmax);
    for (uint32_t r = threadIdx.x / 32; r < alive; r += blockDim.x / 32) {
      const uint32_t at = r * args.rule.experts;
      select_row(args.rule, scratch.scores + at, scratch.keys + at,
                 shared.ids + r * topk, shared.weights + r * topk,
                 [&](uint32_t expert) { prefetch_expert(args.site, expert); });
    }
  }
  const uint32_t s = threadIdx.x;
  if (s < count * topk && (!routed || s >= alive * topk)) {
    store_slot(args, outside, shared.ids + s, shared.weights + s);
  }
  __syncthreads();
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_ROUTE_BLOCK_CUH_
