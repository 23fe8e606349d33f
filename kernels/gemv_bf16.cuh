// What the dense kernels share: one m16 tile of weight rows times 8 rows of
// x, the segments of K spread over the warps of a block.
//
// A lane takes k = 4t .. 4t + 3 of each step as slots 2t, 2t + 1, 2t + 8,
// 2t + 9: one 8-byte load per weight row, four lanes to a 32-byte sector. Which
// slot a k of a step takes changes no bit on sm_90 (tests/contract_gpu_test.cc);
// ring.cuh takes another order.

#ifndef MOEPLAN_KERNELS_GEMV_BF16_CUH_
#define MOEPLAN_KERNELS_GEMV_BF16_CUH_

#include "kernels/args.h"
#include "kernels/ptx_sm80.cuh"

namespace moep {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kGroupRows = 8;   // rows of x of one m16n8k16
constexpr uint32_t kMaxWarps = 8;    // of one block
constexpr uint32_t kStepsAhead = 8;  // steps in flight in each warp

constexpr uint32_t kMaxThreads = kMaxWarps * kLanes;

// One segment's chain as one lane sees it: its k of step 0.
struct Chain {
  const uint16_t* a[2];  // weight rows g and g + 8
  const uint16_t* b;     // row g of x, or null: zeros
  uint32_t steps;        // 1 .. 128
};

struct Step {
  uint32_t a[4];
  uint32_t b[2];
};

__device__ __forceinline__ Step load_step(const Chain& chain, uint32_t step) {
  const uint32_t offset = step * MOEP_STEP_K;
  const uint2 low = ld_global_nc_no_allocate_v2(chain.a[0] + offset);
  const uint2 high = ld_global_nc_no_allocate_v2(chain.a[1] + offset);
  uint2 b = make_uint2(0, 0);
  // A predecessor wrote it: not the read-only path.
  if (chain.b != nullptr) {
    b = *reinterpret_cast<const uint2*>(chain.b + offset);
  }
  return {{low.x, high.x, low.y, high.y}, {b.x, b.y}};
}

// The chain from +0, kAhead loads ahead of the tensor core.
template <uint32_t kAhead = kStepsAhead>
__device__ __forceinline__ float4 run_chain(const Chain& chain) {
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  Step ring[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) {
    ring[i] = Step{};
    if (i < chain.steps) ring[i] = load_step(chain, i);
  }
  for (uint32_t first = 0; first < chain.steps; first += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
      const uint32_t ahead = first + i + kAhead;
      if (first + i < chain.steps) mma_m16n8k16_bf16(sum, ring[i].a, ring[i].b);
      if (ahead < chain.steps) ring[i] = load_step(chain, ahead);
    }
  }
  return make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// Segments of a chain over k.
__host__ __device__ __forceinline__ uint32_t segments_of(uint32_t k) {
  return moep_ceil_div(k, MOEP_SEGMENT_K);
}

// Segment `segment` of [.., k] rows that begin at a[0], a[1] and b.
__device__ __forceinline__ Chain segment_chain(const uint16_t* a0,
                                               const uint16_t* a1,
                                               const uint16_t* b, uint32_t k,
                                               uint32_t segment) {
  const uint32_t begin = segment * MOEP_SEGMENT_K;
  const uint32_t length = min(k - begin, uint32_t{MOEP_SEGMENT_K});
  const uint32_t offset = begin + threadIdx.x % 4 * 4;
  return {{a0 + offset, a1 + offset},
          b == nullptr ? nullptr : b + offset,
          length / MOEP_STEP_K};
}

// Sum of one tile's segments, ascending. totals: [segments, tiles, 32 lanes].
__device__ __forceinline__ float4 sum_segments(const float4* totals,
                                               uint32_t segments,
                                               uint32_t tiles) {
  float4 sum = totals[0];
  for (uint32_t segment = 1; segment < segments; segment++) {
    const float4 next = totals[segment * tiles * kLanes];
    sum.x = __fadd_rn(sum.x, next.x);
    sum.y = __fadd_rn(sum.y, next.y);
    sum.z = __fadd_rn(sum.z, next.z);
    sum.w = __fadd_rn(sum.w, next.w);
  }
  return sum;
}

// The blocks of a grid [columns, row groups] in an order where those that read
// the same weights run side by side; each takes every size-th of both.
struct GridPlace {
  uint32_t column, columns;  // in blocks of columns
  uint32_t group, groups;    // in groups of 8 rows
};

__device__ __forceinline__ GridPlace place_of_block() {
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  return {block / gridDim.y, gridDim.x, block % gridDim.y, gridDim.y};
}

// Threads of a block of `tiles` tiles over k: a warp for each segment of each
// tile, or as many rounds of equally many warps as it takes.
inline uint32_t chain_threads(uint32_t tiles, uint32_t k) {
  const uint32_t chains = tiles * segments_of(k);
  const uint32_t rounds = moep_ceil_div(chains, kMaxWarps);
  const uint32_t warps = moep_ceil_div(chains, rounds);
  return (warps > tiles ? warps : tiles) * kLanes;
}

inline size_t chain_shared_bytes(uint32_t tiles, uint32_t k) {
  return size_t{tiles} * segments_of(k) * kLanes * sizeof(float4);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GEMV_BF16_CUH_
