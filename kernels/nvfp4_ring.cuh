// A ring of stages in shared memory for each warp: 512 k of one m16 tile, 16
// rows of 256 bytes of weights and 32 bytes of scales, copied asynchronously in
// whole lines. No warp waits for another.

#ifndef MOEPLAN_KERNELS_NVFP4_RING_CUH_
#define MOEPLAN_KERNELS_NVFP4_RING_CUH_

#include "kernels/nvfp4_gemv.cuh"

namespace moep {

constexpr uint32_t kStageK = 512;
constexpr uint32_t kStageRow = kStageK / 2;
constexpr uint32_t kStageScales = 16 * kStageRow;
constexpr uint32_t kStageBytes = kStageScales + 16 * (kStageK / 16);  // 4608

// What a lane copies of a stage: 16 bytes of rows lane / 8 and + 4 of both
// halves of the tile, twice; 16 bytes of the scales of row lane / 2.
struct RingSource {
  const uint8_t* weight[4];
  const uint8_t* scale;
};

__device__ __forceinline__ RingSource ring_source(const moep_nvfp4& low,
                                                  const moep_nvfp4& high,
                                                  uint32_t low_row,
                                                  uint32_t high_row,
                                                  uint32_t k) {
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t pitch = k / 2;
  const uint64_t at = lane / 8 * pitch + lane % 8 * 16;
  const uint8_t* scales = lane < 16
                              ? low.scale + uint64_t{low_row} * (k / 16)
                              : high.scale + uint64_t{high_row} * (k / 16);
  const uint8_t* low_weight = low.weight + low_row * pitch + at;
  const uint8_t* high_weight = high.weight + high_row * pitch + at;
  return {{low_weight, low_weight + 4 * pitch, high_weight,
           high_weight + 4 * pitch},
          scales + lane % 16 / 2 * (k / 16) + lane % 2 * 16};
}

// Where a lane copies to, relative to the stage. Row r's 16-byte chunk c lies at
// chunk c ^ 4 (r & 1): two rows of a quarter warp are in different banks.
__device__ __forceinline__ uint32_t ring_target() {
  const uint32_t lane = threadIdx.x % 32, row = lane / 8;
  return row * kStageRow + (lane % 8 ^ (row & 1) << 2) * 16;
}

// Copy one stage and move on to the next.
__device__ __forceinline__ void ring_copy(RingSource& source, uint32_t stage,
                                          uint32_t target) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    cp_async_16(stage + target + i * 4 * kStageRow, source.weight[i]);
    cp_async_16(stage + target + i * 4 * kStageRow + 128,
                source.weight[i] + 128);
    source.weight[i] += kStageRow;
  }
  cp_async_16(stage + kStageScales + threadIdx.x % 32 * 16, source.scale);
  source.scale += kStageK / 16;
}

// Block i (0..3) of a stage as this lane uses it. `words` and `scales` are its
// addresses of block 0 (ring_words, ring_scales).
__device__ __forceinline__ uint32_t ring_words() {
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  return g * kStageRow + (t ^ (g & 1) << 2) * 16;
}

__device__ __forceinline__ NvBlock ring_block(uint32_t stage, uint32_t words,
                                              int i) {
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  // Chunk 4 i + t of row g: bit 2 of the chunk flips with the row's parity.
  const uint32_t at = stage + (words ^ (i & 1) << 6) + i / 2 * 128;
  const uint32_t scale = stage + kStageScales + g * 32 + t * 2 + i * 8;
  NvBlock block;
  block.weight[0] = ld_shared_v4(at);
  block.weight[1] = ld_shared_v4(at + 8 * kStageRow);
  block.scale[0] = ld_shared_u16(scale);
  block.scale[1] = ld_shared_u16(scale + 8 * 32);
  return block;
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_NVFP4_RING_CUH_
