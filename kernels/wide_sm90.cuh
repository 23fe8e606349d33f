// A product of many rows on sm_90: tiles of 128 weight rows times N rows of
// activations, by a persistent grid. What ffn_up and ffn_down share.
//
// The blocks of a cluster (two, or one of a grid of one) work on tiles side by
// side, with the same rows of activations: each fetches its part of them for both.
// Of a block's 12 warps two fetch weights, two store results, and two groups of four
// multiply, 64 weight rows each. A segment of K is one chain in registers; the totals over
// the segments are partly in registers, partly in shared memory. A finished half
// tile goes through the same shared memory to the warp that stores it, while its
// warpgroup multiplies on.

#ifndef MOEPLAN_KERNELS_WIDE_SM90_CUH_
#define MOEPLAN_KERNELS_WIDE_SM90_CUH_

#include "kernels/args.h"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tma_sm90.cuh"
#include "kernels/wgmma_bf16_sm90.cuh"

namespace moep {

constexpr uint32_t kWideRows = 128;   // weight rows of a tile
constexpr uint32_t kWideStageK = 64;  // 128 bytes: the swizzle's width
constexpr uint32_t kWideRowBytes = kWideStageK * 2;
constexpr uint32_t kWideThreads = 384;
constexpr uint32_t kWideLoaders = 64;  // threads
constexpr uint32_t kWideCluster = 2;   // blocks
constexpr uint32_t kWideTogether = 8;  // tiles of rows that take turns
// Registers of a thread that multiplies, and of another; at the start every thread
// has 168, a third of what they may have together.
constexpr uint32_t kWideRegisters = 216;
constexpr uint32_t kWideOthers = 72;
static_assert(2 * kWideRegisters + kWideOthers <= 3 * 168, "of 3 warpgroups");

// Shared memory of a block: stages of weights and activations, then for each
// warpgroup that multiplies 32 words of each row of its tile.
template <uint32_t N>
struct Wide {
  static constexpr uint32_t kWeightBytes = kWideRows * kWideRowBytes;
  static constexpr uint32_t kStageBytes = kWeightBytes + N * kWideRowBytes;
  static constexpr uint32_t kStages = N == 256 ? 3 : N == 128 ? 5 : 7;
  static constexpr uint32_t kResultBytes = N * 32 * 4;
  static constexpr uint32_t kResults = kStages * kStageBytes;
  static constexpr uint32_t kBarriers = kResults + 2 * kResultBytes;
  // And what rounds its address up to 1024.
  static constexpr uint32_t kSharedBytes = kBarriers + kStages * 16 + 1024;

  static constexpr uint32_t kSums = N / 2;  // of a thread that multiplies
  static constexpr uint32_t kKept = kSums < 72 ? kSums : 72;  // in registers
};

// Stage and phase of a ring that all threads go through alike.
template <uint32_t N>
struct WideRing {
  uint32_t base;  // shared memory of the block
  uint32_t stage, parity;

  __device__ __forceinline__ void advance() {
    stage++;
    if (stage == Wide<N>::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ uint32_t weights() const {
    return base + stage * Wide<N>::kStageBytes;
  }
  __device__ __forceinline__ uint32_t activations() const {
    return weights() + Wide<N>::kWeightBytes;
  }
  __device__ __forceinline__ uint32_t full() const {
    return base + Wide<N>::kBarriers + stage * 16;
  }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8; }
};

// The tiles of a launch in the order in which clusters take them: up to
// kWideTogether tiles of rows with the same weights, then the next weights.
struct WideTiles {
  uint32_t weights, rows;  // tiles
  uint32_t sets;           // of weights: what a cluster takes at a time
  uint32_t rank;

  __device__ __forceinline__ uint32_t count() const { return sets * rows; }
  // Of item `i`: tile of weights (may be past the last), tile of rows.
  __device__ __forceinline__ uint2 at(uint32_t i) const {
    const uint32_t first = i / (kWideTogether * sets) * kWideTogether;
    const uint32_t together = min(kWideTogether, rows - first);
    const uint32_t rest = i - first * sets;
    return make_uint2(rest / together * cluster_nctarank() + rank,
                      first + rest % together);
  }
};

// What a thread that fetches weights takes of a tile: rows of 8 in turn from two
// places, pairs of them `step` elements apart; after half of the pairs it goes
// `back` elements back.
struct WideWeights {
  const uint16_t* even;
  const uint16_t* odd;
  uint64_t step, back;
};

// One stage of weights: 16 bytes of each row tid / 8 + 8 i.
__device__ __forceinline__ void wide_copy(const WideWeights& from, uint32_t k,
                                          uint32_t to) {
  const uint32_t row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  to += row * kWideRowBytes + (chunk ^ row) * 16;
  const uint16_t* even = from.even + k + chunk * 8;
  const uint16_t* odd = from.odd + k + chunk * 8;
#pragma unroll
  for (uint32_t i = 0; i < kWideRows / 16; i++) {
    cp_async_16(to + i * 16 * kWideRowBytes, even);
    cp_async_16(to + (i * 16 + 8) * kWideRowBytes, odd);
    const uint64_t step =
        i + 1 == kWideRows / 32 ? from.step - from.back : from.step;
    even += step;
    odd += step;
  }
}

// The block's part of a stage's activations, for each block of the cluster.
template <uint32_t N>
__device__ __forceinline__ void wide_fetch_rows(const WideRing<N>& ring,
                                                const void* map, uint32_t k,
                                                uint32_t row, uint32_t rank,
                                                uint32_t blocks) {
  constexpr uint32_t kPart = N / kWideCluster;
  mbarrier_arrive_expect_tx(ring.full(), N * kWideRowBytes);
  for (uint32_t part = rank; part < kWideCluster; part += blocks) {
    cp_async_bulk_tensor_multicast(
        ring.activations() + part * kPart * kWideRowBytes, map, k,
        row + part * kPart, ring.full(), (1u << blocks) - 1);
  }
}

// All stages of one tile.
template <uint32_t N>
__device__ __forceinline__ void wide_load_tile(WideRing<N>& ring,
                                               const WideWeights& weights,
                                               const void* map, uint32_t row,
                                               uint32_t rank, uint32_t k) {
  const uint32_t blocks = cluster_nctarank();
  for (uint32_t begin = 0; begin < k; begin += kWideStageK) {
    mbarrier_wait(ring.empty(), ring.parity ^ 1);
    if (threadIdx.x == 0) {
      wide_fetch_rows<N>(ring, map, begin, row, rank, blocks);
    }
    wide_copy(weights, begin, ring.weights());
    cp_async_mbarrier_arrive_noinc(ring.full());
    ring.advance();
  }
}

// The stage may be filled again, in each block of the cluster.
template <uint32_t N>
__device__ __forceinline__ void wide_release(const WideRing<N>& ring) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane < cluster_nctarank()) mbarrier_arrive_cluster(ring.empty(), lane);
}

// One segment's chain from +0: `steps` stages.
template <uint32_t N>
__device__ __forceinline__ void wide_multiply(WideRing<N>& ring,
                                              float (&sum)[Wide<N>::kSums],
                                              uint32_t steps) {
  const uint32_t half = threadIdx.x / 128 - 1;
  WideRing<N> before = ring;
#pragma unroll
  for (uint32_t i = 0; i < Wide<N>::kSums; i++) sum[i] = 0.0f;
  for (uint32_t step = 0; step < steps; step++) {
    mbarrier_wait(ring.full(), ring.parity);
    fence_proxy_async();
    const uint64_t a = wgmma_descriptor(ring.weights() +
                                        half * (kWideRows / 2) * kWideRowBytes);
    const uint64_t b = wgmma_descriptor(ring.activations());
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < kWideStageK / MOEP_STEP_K; i++) {
      wgmma_bf16<N>(sum, a + i * kWgmmaStep, b + i * kWgmmaStep);
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (step != 0) wide_release<N>(before);
    before = ring;
    ring.advance();
  }
  wgmma_wait_group<0>();
  wgmma_hold(sum);
  wide_release<N>(before);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_WIDE_SM90_CUH_
