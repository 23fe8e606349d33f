// NVFP4 weights as the A operand of the tensor core, straight from the
// checkpoint's bytes.
//
// A lane (g = lane / 4, t = lane % 4) holds rows g and g + 8 of an m16 tile (which rows of
// the weights these are is the caller's choice) and,
// of each block of 128 k, the 32 k from 32 t on: 16 bytes of a row. Word j of
// these, nibbles i and i + 4, is one operand register (kset.h); its block scale
// is the lane's first for j < 2, else its second. So nothing moves between lanes.
//
// About 20 instructions turn the 8 weights of a word into operands and multiply.

#ifndef MOEPLAN_KERNELS_NVFP4_GEMV_CUH_
#define MOEPLAN_KERNELS_NVFP4_GEMV_CUH_

#include "kernels/kset.h"
#include "kernels/ptx_sm80.cuh"
#include "kernels/site_table.h"
#include "kernels/unpack.h"

namespace moep {

// Two weight rows as one lane reads them, at the block to load next.
struct NvRows {
  const uint8_t* weight[2];
  const uint8_t* scale[2];
};

struct NvBlock {
  uint4 weight[2];
  uint32_t scale[2];  // two E4M3 codes each
};

// One row's part of a block, zeros past k; `left` is what is left of k from the
// lane's first k on. wide: the row is 16-byte aligned, k a multiple of 32.
__device__ __forceinline__ void nv_load_row(const uint8_t* weight,
                                            const uint8_t* scale, int32_t left,
                                            bool wide, uint4& words,
                                            uint32_t& codes) {
  words = make_uint4(0, 0, 0, 0);
  codes = 0;
  if (left <= 0) return;
  if (wide) {
    words = ld_global_nc_no_allocate_v4(weight);
    codes = ld_global_nc_u16(scale);
    return;
  }
  const uint2 low = ld_global_nc_no_allocate_v2(weight);
  words.x = low.x;
  words.y = low.y;
  codes = ld_global_nc_u8(scale);
  if (left <= 16) return;
  const uint2 high = ld_global_nc_no_allocate_v2(weight + 8);
  words.z = high.x;
  words.w = high.y;
  codes |= ld_global_nc_u8(scale + 1) << 8;
}

// Load a block and move the rows past it. k_left: k of the row from the block's
// first on; wide: rows are 16-byte aligned.
__device__ __forceinline__ void nv_load(NvRows& rows, uint32_t k_left,
                                        bool wide, NvBlock& out) {
  const int32_t left =
      static_cast<int32_t>(k_left) - static_cast<int32_t>(threadIdx.x % 4 * 32);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    nv_load_row(rows.weight[r], rows.scale[r], left, wide, out.weight[r],
                out.scale[r]);
    rows.weight[r] += MOEP_BLOCK_K / 2;
    rows.scale[r] += MOEP_BLOCK_K / 16;
  }
}

// Two block scales as pairs of equal bf16: E4M3 x 2^100.
__device__ __forceinline__ void nv_scales(uint32_t codes, uint32_t (&out)[2]) {
  constexpr uint32_t kTwoTo110 = 0x76807680;
  const uint32_t spread = __byte_perm(codes, 0, 0x4140);
  const uint32_t both =
      mul_bf16x2(mul_bf16x2(moep_unpack_e4m3(spread), kTwoTo110), kTwoTo110);
  out[0] = __byte_perm(both, both, 0x1010);
  out[1] = __byte_perm(both, both, 0x3232);
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int j) {
  return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

// A lane's activations of one block: word j is its four words of the 32
// positions from 32 j on, in the order (h, c) of kset.h.
struct NvOperands {
  uint4 word[4];
};

// The 8 steps of one block. Once word j is used, next(j, word) may load the word
// of the next block into it.
template <typename Next>
__device__ __forceinline__ void nv_block(const NvBlock& block, float (&acc)[4],
                                         NvOperands& operands, Next next) {
  uint32_t scale[2][2];
  nv_scales(block.scale[0], scale[0]);
  nv_scales(block.scale[1], scale[1]);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint4& b = operands.word[j];
    const moep_e2m1_pairs low = moep_unpack_e2m1(word_of(block.weight[0], j));
    const moep_e2m1_pairs high = moep_unpack_e2m1(word_of(block.weight[1], j));
    const uint32_t s0 = scale[0][j / 2], s1 = scale[1][j / 2];
    const uint32_t a0[4] = {
        mul_bf16x2(low.pair[0], s0), mul_bf16x2(high.pair[0], s1),
        mul_bf16x2(low.pair[1], s0), mul_bf16x2(high.pair[1], s1)};
    const uint32_t b0[2] = {b.x, b.y};
    mma_m16n8k16_bf16(acc, a0, b0);
    const uint32_t a1[4] = {
        mul_bf16x2(low.pair[2], s0), mul_bf16x2(high.pair[2], s1),
        mul_bf16x2(low.pair[3], s0), mul_bf16x2(high.pair[3], s1)};
    const uint32_t b1[2] = {b.z, b.w};
    mma_m16n8k16_bf16(acc, a1, b1);
    next(j, b);
  }
}

// Where the two bf16 of word (j, t, h, c) of a block lie: "lane order". A lane's
// four words of one j are 16 bytes.
__host__ __device__ __forceinline__ uint32_t lane_order_word(uint32_t p_word) {
  // p order of words in a block of 64: (j1 j0 h c t1 t0) -> (j1 j0 t1 t0 h c)
  return (p_word & ~15u) | (p_word & 3) << 2 | (p_word >> 2 & 3);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_NVFP4_GEMV_CUH_
