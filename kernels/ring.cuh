// A ring of stages in shared memory for each warp, filled by cp.async. No
// warp waits for another. A stage is 512 k: one m16 tile's NVFP4 weights (16 rows
// of 256 bytes, then 16 of 32 bytes of scales) or 4 rows of bf16 weights (1024
// bytes each).

#ifndef MOEPLAN_KERNELS_RING_CUH_
#define MOEPLAN_KERNELS_RING_CUH_

#include "kernels/group_memory.h"
#include "kernels/nvfp4_gemv.cuh"

namespace moep {

constexpr uint32_t kStageBytes = MOEP_GROUP_STAGE_BYTES;
constexpr uint32_t kStages = MOEP_GROUP_STAGES;
constexpr uint32_t kStageK = 512;
constexpr uint32_t kHalfK = kStageK / 2;
constexpr uint32_t kNvRow = kStageK / 2;
constexpr uint32_t kNvScales = 16 * kNvRow;
constexpr uint32_t kBfRow = kStageK * 2;
constexpr uint32_t kBfRows = 4;
static_assert(kNvScales + 16 * (kStageK / 16) == kStageBytes, "NVFP4 stage");
static_assert(kBfRows * kBfRow <= kStageBytes, "bf16 stage");
static_assert(kStages == 2, "Ring::advance");

// Rows of a tile in memory, from the first k of a unit on: half of them from
// `low` on, half from `high` on, `pitch` bytes apart.
struct TileRows {
  const uint8_t* low;
  const uint8_t* high;
  const uint8_t* low_scale;  // NVFP4
  const uint8_t* high_scale;
  uint32_t pitch;
  uint32_t bf16_rows;  // of the 4; 0: NVFP4, 16 rows
  uint32_t k;
};

// What a lane copies next. Four copies make a stage: two of low rows, two of
// high ones, `step` bytes apart.
struct Source {
  const uint8_t* low;
  const uint8_t* high;
  const uint8_t* scale;
  uint32_t step;
  uint32_t bf16_rows;
  uint32_t left;  // k still to copy; 0: nothing more
};

template <bool kNvOnly>
__device__ __forceinline__ Source source_of(const TileRows& tile) {
  const uint32_t lane = threadIdx.x % 32;
  const bool bf16 = !kNvOnly && tile.bf16_rows != 0;
  const uint32_t row = bf16 ? 0 : lane / 8;
  const uint32_t chunk = bf16 ? lane : lane % 8;
  const uint32_t at = row * tile.pitch + chunk * 16;
  const uint8_t* scale = lane < 16 ? tile.low_scale : tile.high_scale;
  return {tile.low + at,
          tile.high + at,
          scale + lane % 16 / 2 * (tile.pitch / 8) + lane % 2 * 16,
          (bf16 ? 1 : 4) * tile.pitch,
          tile.bf16_rows,
          tile.k};
}

// Row r's 16-byte chunk c lies at chunk c ^ 4 (r & 1): two rows of a quarter
// warp are in different banks.
__device__ __forceinline__ uint32_t nv_target() {
  const uint32_t lane = threadIdx.x % 32, row = lane / 8;
  return row * kNvRow + (lane % 8 ^ (row & 1) << 2) * 16;
}

// The last stage of a row may be half of one, unless kWhole.
template <bool kWhole>
__device__ __forceinline__ void nv_copy(Source& source, uint32_t stage,
                                        uint32_t target) {
  const uint32_t lane = threadIdx.x % 32, to = stage + target;
  const bool whole = kWhole || source.left > kHalfK;
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    const uint8_t* from =
        (i < 2 ? source.low : source.high) + i % 2 * source.step;
    cp_async_16_of_row(to + i * 4 * kNvRow, from, evict_first());
    if (whole)
      cp_async_16_of_row(to + i * 4 * kNvRow + 128, from + 128, evict_first());
  }
  if (whole || lane % 2 == 0) {
    cp_async_16(stage + kNvScales + lane * 16, source.scale);
  }
  source.low += kNvRow;
  source.high += kNvRow;
  source.scale += kStageK / 16;
  source.left -= kWhole ? kStageK : min(source.left, kStageK);
}

// Row r's 16-byte chunk c lies at chunk c ^ 2 (r & 1): two rows of half a warp
// are in different banks.
__device__ __forceinline__ void bf_copy(Source& source, uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < 2 * kBfRows; i++) {
    const uint32_t r = i / 2, chunk = i % 2 * 32 + lane;
    if (r >= source.bf16_rows || chunk * 8 >= source.left) continue;
    cp_async_16(
        stage + r * kBfRow + (chunk ^ (r & 1) << 1) * 16,
        (r < 2 ? source.low : source.high) + r % 2 * source.step + i % 2 * 512,
        evict_first());
  }
  source.low += kBfRow;
  source.high += kBfRow;
  source.left -= min(source.left, kStageK);
}

// Lane's place in a stage: its words of block 0 of row g, and its scale codes.
__device__ __forceinline__ uint32_t nv_words() {
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  return g * kNvRow + (t ^ (g & 1) << 2) * 16;
}
__device__ __forceinline__ uint32_t nv_codes() {
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  return kNvScales + g * 32 + t * 2;
}

// Block i (0, 1) of half a stage as this lane uses it.
__device__ __forceinline__ NvBlock nv_ring_block(uint32_t words, uint32_t codes,
                                                 uint32_t i) {
  const uint32_t at = words ^ i << 6;
  NvBlock block;
  block.weight[0] = ld_shared_v4(at);
  block.weight[1] = ld_shared_v4(at + 8 * kNvRow);
  block.scale[0] = ld_shared_u16(codes + i * 8);
  block.scale[1] = ld_shared_u16(codes + i * 8 + 8 * 32);
  return block;
}

// A chain of bf16 steps over a stage: the low half of the m16 has rows 0 and 1
// four times each (lane g: row g % 2), the high half rows 2 and 3. x: shared
// memory, this lane's row in lane order at the stage's first k (bf_place), if it
// has one; else zeros.
//
// Of step s a lane takes k = 16 s + 8 (t / 2) + 2 (t % 2) + {0, 1, 4, 5} as slots
// 2t, 2t + 1, 2t + 8, 2t + 9: what lane order keeps together. Which slot a k of a
// step takes changes no bit on sm_90 (tests/contract_gpu_test.cc).
__device__ __forceinline__ uint32_t bf_place() {
  const uint32_t t = threadIdx.x % 4;
  return t / 2 * 64 + t % 2 * 8;
}
__device__ __forceinline__ void bf_stage(uint32_t stage, uint32_t steps,
                                         bool has_x, uint32_t x,
                                         float (&acc)[4]) {
  const uint32_t row = threadIdx.x % 32 / 4 % 2, t = threadIdx.x % 4;
  const uint32_t low = stage + row * kBfRow + t % 2 * 4;
  const uint32_t chunk = t / 2 ^ row << 1;
#pragma unroll 1
  for (uint32_t first = 0; first < steps; first += 8) {
#pragma unroll
    for (uint32_t s = 0; s < 8; s++) {
      if (first + s >= steps) break;
      const uint32_t at = low + (2 * (first + s) ^ chunk) * 16;
      const uint32_t a[4] = {ld_shared_u32(at), ld_shared_u32(at + 2 * kBfRow),
                             ld_shared_u32(at + 8),
                             ld_shared_u32(at + 8 + 2 * kBfRow)};
      uint2 b = make_uint2(0, 0);
      if (has_x) b = ld_shared_v2(x + s % 2 * 128 + s / 2 * 16);
      const uint32_t operand[2] = {__byte_perm(b.x, b.y, 0x5410),
                                   __byte_perm(b.x, b.y, 0x7632)};
      mma_m16n8k16_bf16(acc, a, operand);
    }
    x += 256;
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_RING_CUH_
