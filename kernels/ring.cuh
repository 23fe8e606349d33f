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
static_assert(kStageBytes % kNvRow == 0 && kNvScales % 32 == 0, "halves");

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

// Row r's 16-byte chunk c lies at chunk c ^ 2 r: the four rows of a warp are in
// different banks.
__device__ __forceinline__ void bf_copy(Source& source, uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < 2 * kBfRows; i++) {
    const uint32_t r = i / 2, chunk = i % 2 * 32 + lane;
    if (r >= source.bf16_rows || chunk * 8 >= source.left) continue;
    cp_async_16(
        stage + r * kBfRow + (chunk ^ r << 1) * 16,
        (r < 2 ? source.low : source.high) + r % 2 * source.step + i % 2 * 512,
        evict_first());
  }
  source.low += kBfRow;
  source.high += kBfRow;
  source.left -= min(source.left, kStageK);
}

// Lane's place in a stage: its words of block 0 of row g, and its scale codes. Halves of
// a row differ in one bit of an address, blocks of half a row in another.
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

// A chain of bf16 steps over a stage: both halves of the m16 have its four rows, twice
// each (lane g: row g % 4), so that a lane reads half of what its operand is. x: shared
// memory, this lane's row in lane order at the stage's first k (bf_place).
//
// Of step s a lane takes k = 16 s + 8 (t / 2) + 2 (t % 2) + {0, 1, 4, 5} as slots
// 2t, 2t + 1, 2t + 8, 2t + 9: what lane order keeps together. Which slot a k of a
// step takes changes no bit on sm_90 (tests/contract_gpu_test.cc).
__device__ __forceinline__ uint32_t bf_place() {
  const uint32_t t = threadIdx.x % 4;
  return t / 2 * 64 + t % 2 * 8;
}

// Operands of kCount steps, read before any of them multiplies.
template <int kCount>
struct BfSteps {
  uint32_t low[kCount], high[kCount];
  uint2 x[kCount];
};

// Steps first .. of a block of 8: its weights from `block` on, chunk c of this lane's row
// at c ^ turn, and its x.
template <int kCount>
__device__ __forceinline__ BfSteps<kCount> bf_load(uint32_t block,
                                                   uint32_t turn, uint32_t x,
                                                   uint32_t first) {
  BfSteps<kCount> steps;
#pragma unroll
  for (uint32_t i = 0; i < kCount; i++) {
    const uint32_t s = first + i, at = block + (2 * s ^ turn) * 16;
    steps.low[i] = ld_shared_u32(at);
    steps.high[i] = ld_shared_u32(at + 8);
    steps.x[i] = ld_shared_v2(x + s % 2 * 128 + s / 2 * 16);
  }
  return steps;
}

template <int kCount>
__device__ __forceinline__ void bf_multiply(const BfSteps<kCount>& steps,
                                            float (&acc)[4]) {
#pragma unroll
  for (uint32_t i = 0; i < kCount; i++) {
    const uint32_t a[4] = {steps.low[i], steps.low[i], steps.high[i],
                           steps.high[i]};
    const uint2 x = steps.x[i];
    const uint32_t b[2] = {__byte_perm(x.x, x.y, 0x5410),
                           __byte_perm(x.x, x.y, 0x7632)};
    mma_m16n8k16_bf16(acc, a, b);
  }
}

__device__ __forceinline__ void bf_stage(uint32_t stage, uint32_t steps,
                                         uint32_t x, float (&acc)[4]) {
  constexpr uint32_t kBlockBytes = 8 * 32;  // of 8 steps, weights of a row as x
  const uint32_t row = threadIdx.x % 32 / 4 % 4, t = threadIdx.x % 4;
  const uint32_t turn = t / 2 ^ row << 1;
  uint32_t own = stage + row * kBfRow + t % 2 * 4;
  if (steps >= 8) {
    BfSteps<2> ahead = bf_load<2>(own, turn, x, 0);
#pragma unroll 1
    for (; steps >= 8; steps -= 8) {
#pragma unroll
      for (uint32_t s = 2; s <= 8; s += 2) {
        const BfSteps<2> now = ahead;
        if (s == 8 && steps >= 16) {
          own += kBlockBytes;
          x += kBlockBytes;
        }
        // After the last block its own first steps, which nobody needs.
        ahead = bf_load<2>(own, turn, x, s % 8);
        bf_multiply(now, acc);
      }
    }
    own += kBlockBytes;
    x += kBlockBytes;
  }
#pragma unroll 1
  for (uint32_t s = 0; s < steps; s++) {
    bf_multiply(bf_load<1>(own, turn, x, s), acc);
  }
}

// Of the sums, rows 2 and 3 beside rows 0 and 1: lanes g = 0 and 1 have rows g (the
// first two) and g + 2.
__device__ __forceinline__ void bf_pair_rows(float (&sum)[4]) {
  const uint32_t lane = threadIdx.x % 32;
  sum[2] = __shfl_sync(~0u, sum[0], lane + 8);
  sum[3] = __shfl_sync(~0u, sum[1], lane + 8);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_RING_CUH_
