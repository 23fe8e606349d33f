// A segment of a wide unit, by a warpgroup of kM m64 tiles: weights of 128 k,
// tokens of 64 k, scales of 256 k at a time, each ring at its own pace.

#ifndef MOEPLAN_KERNELS_GROUPED_WIDE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_WIDE_SM90_CUH_

#include "kernels/grouped_tile_sm90.cuh"

namespace moep {

// This lane's weights of one block of 128 k, of kM m64 tiles.
template <bool kUp, int kTile>
__device__ __forceinline__ void take_weights(const GroupedBlock& block,
                                             Consumer& at, bool last,
                                             NvBlock (&out)[Shape<kTile>::kM]) {
  constexpr uint32_t kRow = kWideWeights / 2;
  constexpr uint32_t kTilesApart = kUp ? 8 : 64;
  const uint32_t row = tile_row<kUp, kTile>(0) + lane_row();
  const uint32_t t = threadIdx.x % 4;
  const uint32_t own_words = row * kRow + t * 16;
  const uint32_t own_codes = row * kScaleRow + t * 2;
  mbarrier_wait(block.weights.full(at.weights.stage), at.weights.parity);
  mbarrier_wait(block.scales.full(at.scales.stage), at.scales.parity);
  const uint32_t words = block.weights.address(at.weights.stage) + own_words;
  const uint32_t codes = block.scales.address(at.scales.stage) +
                         at.scale_half * (MOEP_BLOCK_K / 16) + own_codes;
#pragma unroll
  for (int m = 0; m < Shape<kTile>::kM; m++) {
    const uint32_t first = m * kTilesApart;
    const uint32_t second = first + kRowsApart<kUp, kTile>;
    out[m].weight[0] = ld_shared_v4(words + first * kRow);
    out[m].weight[1] = ld_shared_v4(words + second * kRow);
    out[m].scale[0] = ld_shared_u16(codes + first * kScaleRow);
    out[m].scale[1] = ld_shared_u16(codes + second * kScaleRow);
  }
  release(block.weights.empty(at.weights.stage));
  at.weights.advance(block.weights);
  at.scale_half ^= 1;
  if (at.scale_half == 0 || last) {
    if (threadIdx.x % 32 == 0) {
      mbarrier_arrive(block.scales.empty(at.scales.stage));
    }
    at.scales.advance(block.scales);
    at.scale_half = 0;
  }
}

// All steps of one block of 128 k.
template <bool kUp, int kN, int kTile>
__device__ __forceinline__ void multiply_block(
    const GroupedBlock& block, Consumer& at, bool last,
    float (&acc)[Shape<kTile>::kM][kN / 2]) {
  constexpr int kM = Shape<kTile>::kM;
  NvBlock weights[kM];
  take_weights<kUp, kTile>(block, at, last, weights);
  uint32_t scale[kM][2][2];
#pragma unroll
  for (int m = 0; m < kM; m++) {
    nv_scales(weights[m].scale[0], scale[m][0]);
    nv_scales(weights[m].scale[1], scale[m][1]);
  }
  uint32_t a[2][8];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    mbarrier_wait(block.tokens.full(at.tokens.stage), at.tokens.parity);
    const uint64_t b = wgmma_descriptor(block.tokens.address(at.tokens.stage));
#pragma unroll
    for (int i = 0; i < 2 * kM; i++) {
      const int j = 2 * half + i / kM, m = i % kM;
      // The group before the last has left its operands' registers.
      wgmma_wait_group<1>();
      if (i == 1) release_tokens_if<kTile>(block, at.token_behind, at.behind);
      uint32_t(&operands)[8] = a[i % 2];
      dequantise(weights[m], scale[m], j, operands);
      wgmma_fence();
      const uint64_t step = b + i / kM * 2 * kWgmmaStep;
      wgmma_bf16<kN>(acc[m], operands, step);
      wgmma_bf16<kN>(acc[m], operands + 4, step + kWgmmaStep);
      wgmma_commit_group();
    }
    at.token_behind = at.tokens.stage;
    at.behind = true;
    at.tokens.advance(block.tokens);
  }
}

// Blocks from .. to of `blocks`: a segment, from zeros in acc.
template <bool kUp, int kN, int kTile>
__device__ __forceinline__ void multiply_wide(
    const GroupedBlock& block, Consumer& at, uint32_t from, uint32_t to,
    uint32_t blocks, float (&acc)[Shape<kTile>::kM][kN / 2]) {
#pragma unroll 1
  for (uint32_t i = from; i < to; i++) {
    multiply_block<kUp, kN, kTile>(block, at, i + 1 == blocks, acc);
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_WIDE_SM90_CUH_
