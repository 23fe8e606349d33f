// A segment of a narrow unit, by a warpgroup of one m64 tile. Unpacking bounds it, so
// the loop around it is short: weights, scales and tokens of a stage are behind one
// barrier (scales in slots of their own), and two or four steps make a group of wgmma.

#ifndef MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_

#include "kernels/grouped_tile_sm90.cuh"

namespace moep {

// K of a stage of a tile of kTile tokens.
template <int kTile>
constexpr uint32_t kNarrowStage = (kTile > 32 ? 1 : 2) * MOEP_BLOCK_K;

// This lane's weights of block `half` of a stage of kK.
template <uint32_t kK>
__device__ __forceinline__ NvBlock narrow_block(uint32_t weights,
                                                uint32_t scales,
                                                uint32_t half) {
  const uint32_t words = weights ^ half * 64;
  const uint32_t codes = scales + half * (MOEP_BLOCK_K / 16);
  NvBlock out;
  out.weight[0] = ld_shared_v4(words);
  out.weight[1] = ld_shared_v4(words + 8 * (kK / 2));
  out.scale[0] = ld_shared_u16(codes);
  out.scale[1] = ld_shared_u16(codes + 8 * kScaleRow);
  return out;
}

// Blocks from .. to of `blocks`: a segment, from zeros in acc.
template <int kN, int kTile>
__device__ __forceinline__ void multiply_narrow(const GroupedBlock& block,
                                                Consumer& at, uint32_t from,
                                                uint32_t to, uint32_t blocks,
                                                float (&acc)[1][kN / 2]) {
  const uint32_t row = first_row<1>(), t = threadIdx.x % 4;
  constexpr uint32_t kK = kNarrowStage<kTile>;
  constexpr uint32_t kHalves = kK / MOEP_BLOCK_K;
  const uint32_t own_words = weight_place<kK>(row, t);
  const uint32_t own_codes = row * kScaleRow + t * 2;
  // Words of a group: as many as there are registers for.
  constexpr int kWords = kN > 8 ? 1 : 2;
#pragma unroll 1
  for (uint32_t first = from; first < to; first += kHalves) {
    mbarrier_wait(block.tokens.full(at.tokens.stage), at.tokens.parity);
    const uint32_t words = block.weights.address(at.tokens.stage) + own_words;
    const uint32_t codes =
        block.scales.address(at.scales.stage) +
        (kHalves == 1 ? first % 2 * (MOEP_BLOCK_K / 16) : 0) + own_codes;
    const uint64_t b = wgmma_descriptor(block.tokens.address(at.tokens.stage));
#pragma unroll
    for (uint32_t half = 0; half < kHalves; half++) {
      if (half == 1 && first + 1 == to) break;
      const NvBlock weights = narrow_block<kK>(words, codes, half);
      uint32_t scale[2][2], a[2][8 * kWords];
      nv_scales(weights.scale[0], scale[0]);
      nv_scales(weights.scale[1], scale[1]);
#pragma unroll
      for (int q = 0; q < 4 / kWords; q++) {
        // The group before the last has left its operands' registers.
        wgmma_wait_group<1>();
        if (half == 0 && q == 1) {
          release_if(block.tokens.empty(at.token_behind), at.behind);
        }
        uint32_t* operands = a[q % 2];
#pragma unroll
        for (int i = 0; i < kWords; i++) {
          dequantise(weights, scale, kWords * q + i, operands + 8 * i);
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2 * kWords; s++) {
          const int step = 2 * kWords * q + s;
          const uint32_t tile = 2 * half + step / 4;
          wgmma_bf16<kN>(
              acc[0], operands + 4 * s,
              b + tile * (kTile * MOEP_TILE_ROW_BYTES / 16) + step % 4 * 2);
        }
        wgmma_commit_group();
      }
    }
    at.token_behind = at.tokens.stage;
    at.behind = true;
    at.tokens.advance(block.tokens);
    if (kHalves == 2 || first % 2 == 1 || first + 1 == blocks) {
      at.scales.advance(block.scales);
    }
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_NARROW_SM90_CUH_
