// What the warpgroups of wide and narrow tiles share: operands from weights in shared
// memory, the end of a segment, sums of segments in the warpgroup's own region.

#ifndef MOEPLAN_KERNELS_GROUPED_TILE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_TILE_SM90_CUH_

#include "kernels/grouped_pipe_sm90.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/nvfp4_gemv.cuh"
#include "kernels/scalar.h"
#include "kernels/wgmma_bf16_sm90.cuh"

namespace moep {

constexpr uint32_t kBlocksOfSegment = MOEP_SEGMENT_K / MOEP_BLOCK_K;

// A warpgroup's place in its rings. Narrow tiles have their scales in `weights`.
struct Consumer {
  RingPlace tokens, weights, scales;
  uint32_t scale_half;    // the block's half of the stage of scales
  uint32_t token_behind;  // stage whose last wgmma may still run
  bool behind;
};

// The warp is done with a stage.
__device__ __forceinline__ void release_if(uint32_t barrier, bool on) {
  __syncwarp();
  mbarrier_arrive_if(barrier, on && threadIdx.x % 32 == 0);
}
__device__ __forceinline__ void release(uint32_t barrier) {
  release_if(barrier, true);
}

// With a stage of tokens, that of a wide tile in each block of a pair.
template <int kTile>
__device__ __forceinline__ void release_tokens_if(const GroupedBlock& block,
                                                  uint32_t stage, bool on) {
  const uint32_t empty = block.tokens.empty(stage);
  if constexpr (!Shape<kTile>::kWide) {
    release_if(empty, on);
  } else {
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
    mbarrier_arrive_cluster_if(empty, lane & block.paired,
                               on && lane <= block.paired);
  }
}

// The operands of word j: two steps.
__device__ __forceinline__ void dequantise(const NvBlock& block,
                                           const uint32_t (&scale)[2][2], int j,
                                           uint32_t* a) {
  const moep_e2m1_pairs low = moep_unpack_e2m1(word_of(block.weight[0], j));
  const moep_e2m1_pairs high = moep_unpack_e2m1(word_of(block.weight[1], j));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    a[2 * i] = mul_bf16x2(low.pair[i], scale[0][j / 2]);
    a[2 * i + 1] = mul_bf16x2(high.pair[i], scale[1][j / 2]);
  }
}

template <int kN, int kTile>
__device__ __forceinline__ void drain(const GroupedBlock& block, Consumer& at,
                                      float (&acc)[Shape<kTile>::kM][kN / 2]) {
  wgmma_wait_group<0>();
#pragma unroll
  for (int m = 0; m < Shape<kTile>::kM; m++) wgmma_hold(acc[m]);
  release_tokens_if<kTile>(block, at.token_behind, true);
  at.behind = false;
}

// Sums of a thread's segments, [kM kN / 8][threads] of 16 bytes, four at a time: kFrom
// .. kTo of them, of which the first lies at the region's start.
template <int kN, int kM, int kFrom, int kTo, typename Use>
__device__ __forceinline__ void each_four(uint32_t region,
                                          float (&acc)[kM][kN / 2], Use use) {
  const uint32_t own = region + threadIdx.x % kGroupThreads * 16;
#pragma unroll
  for (int i = kFrom; i < kTo; i++) {
    use(own + (i - kFrom) * kGroupThreads * 16,
        &acc[i / (kN / 8)][i % (kN / 8) * 4]);
  }
}

__device__ __forceinline__ void store_four(uint32_t address, const float* v) {
  st_shared_v4(address, v[0], v[1], v[2], v[3]);
}

// v = sum at address + v.
__device__ __forceinline__ void add_four(uint32_t address, float* v) {
  const float4 sum = ld_shared_v4_f32(address);
  v[0] = __fadd_rn(sum.x, v[0]);
  v[1] = __fadd_rn(sum.y, v[1]);
  v[2] = __fadd_rn(sum.z, v[2]);
  v[3] = __fadd_rn(sum.w, v[3]);
}

// Fours of a thread's sums for which its warpgroup's region has room: of n256, beside
// three stages of tokens.
template <int kTile>
constexpr int kRegionFours = kTile > 128 ? 24 : Shape<kTile>::kM* kTile / 8;

// Totals of a unit's segments so far: the first fours in the region, the others in
// registers.
template <int kN, int kTile>
struct Totals {
  static constexpr int kM = Shape<kTile>::kM, kFours = kM * kN / 8;
  static constexpr int kThere =
      kFours < kRegionFours<kTile> ? kFours : kRegionFours<kTile>;
  static constexpr int kKept = kM * kN / 2 - kThere * 4;
  float kept[kKept == 0 ? 1 : kKept];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kKept; i++) kept[i] = 0.0f;
  }
  // sum = total + sum
  __device__ __forceinline__ void add_to(uint32_t region,
                                         float (&sum)[kM][kN / 2]) const {
    each_four<kN, kM, 0, kThere>(region, sum, add_four);
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      float& v = sum[0][kThere * 4 + i];
      v = __fadd_rn(kept[i], v);
    }
  }
  __device__ __forceinline__ void set(uint32_t region,
                                      float (&sum)[kM][kN / 2]) {
    each_four<kN, kM, 0, kThere>(region, sum, store_four);
#pragma unroll
    for (int i = 0; i < kKept; i++) kept[i] = sum[0][kThere * 4 + i];
  }
};

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_TILE_SM90_CUH_
