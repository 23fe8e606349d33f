// A segment of a narrow unit, by a warpgroup of one m64 tile. Unpacking bounds it, so
// the loop around it is short: weights and scales of a stage are behind one barrier, and
// two or four steps make a group of wgmma.

#ifndef MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_

#include "kernels/grouped_tile_sm90.cuh"

namespace moep {

// This lane's weights of block `half` of a stage.
template <bool kUp, int kTile>
__device__ __forceinline__ NvBlock narrow_block(uint32_t weights,
                                                uint32_t scales,
                                                uint32_t half) {
  const uint32_t words = weights ^ half * 64;
  const uint32_t codes = scales + half * (MOEP_BLOCK_K / 16);
  NvBlock out;
  out.weight[0] = ld_shared_v4(words);
  out.weight[1] = ld_shared_v4(words + kRowsApart<kUp, kTile> * kBoxRow);
  out.scale[0] = ld_shared_u16(codes);
  out.scale[1] = ld_shared_u16(codes + kRowsApart<kUp, kTile> * kScaleRow);
  return out;
}

// Blocks from .. to of `blocks`: a segment, from zeros in acc.
template <bool kUp, int kN, int kTile>
__device__ __forceinline__ void multiply_narrow(const GroupedBlock& block,
                                                Consumer& at, uint32_t from,
                                                uint32_t to, uint32_t blocks,
                                                float (&acc)[1][kN / 2]) {
  const uint32_t row = tile_row<kUp, kTile>(0) + lane_row(),
                 t = threadIdx.x % 4;
  const uint32_t own_words = row * kBoxRow + (t ^ row % 8) * 16;
  const uint32_t own_codes = row * kScaleRow + t * 2;
  constexpr uint32_t kTokenTile = kTile * MOEP_TILE_ROW_BYTES / 16;
  constexpr uint32_t kBlocks = kNarrowTokens<kTile> / MOEP_BLOCK_K;
  // Words of a group: as many as there are registers for.
  constexpr int kWords = kN > 8 ? 1 : 2;
#pragma unroll 1
  for (uint32_t first = from; first < to; first += kBlocks) {
    // With one block of tokens a stage, every other time for the second half.
    const uint32_t behind_first = kBlocks == 1 ? first % 2 : 0;
    mbarrier_wait(block.weights.full(at.weights.stage), at.weights.parity);
    mbarrier_wait(block.tokens.full(at.tokens.stage), at.tokens.parity);
    const uint32_t words = block.weights.address(at.weights.stage) + own_words;
    const uint32_t codes = block.scales.address(at.weights.stage) + own_codes;
    const uint64_t b = wgmma_descriptor(block.tokens.address(at.tokens.stage));
#pragma unroll
    for (uint32_t i = 0; i < kBlocks; i++) {
      if (i == 1 && first + 1 == to) break;
      const NvBlock weights =
          narrow_block<kUp, kTile>(words, codes, i + behind_first);
      uint32_t scale[2][2], a[2][8 * kWords];
      nv_scales(weights.scale[0], scale[0]);
      nv_scales(weights.scale[1], scale[1]);
#pragma unroll
      for (int q = 0; q < 4 / kWords; q++) {
        // The group before the last has left its operands' registers.
        wgmma_wait_group<1>();
        if (i == 0 && q == 1) {
          release_if(block.tokens.empty(at.token_behind), at.behind);
        }
        uint32_t* operands = a[q % 2];
#pragma unroll
        for (int j = 0; j < kWords; j++) {
          dequantise(weights, scale, kWords * q + j, operands + 8 * j);
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2 * kWords; s++) {
          const int step = 2 * kWords * q + s;
          wgmma_bf16<kN>(
              acc[0], operands + 4 * s,
              b + (2 * i + step / 4) * kTokenTile + step % 4 * kWgmmaStep);
        }
        wgmma_commit_group();
      }
    }
    at.token_behind = at.tokens.stage;
    at.behind = true;
    at.tokens.advance(block.tokens);
    if (kBlocks == 2 || behind_first == 1 || first + 1 == blocks) {
      release(block.weights.empty(at.weights.stage));
      at.weights.advance(block.weights);
    }
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_
