// A product of few rows: each weight byte comes through shared memory once, by
// cp.async, for up to 8 kGroups rows of activations. What the dense kernels share.
//
// A persistent grid shares out the tiles, 16 weight rows each; a block works on a
// batch of its tiles at a time. A job is kTiles of them over one segment of K, by
// one warp, whose ring of stages also holds the rows of activations: no warp
// waits for another before the batch's segments are added.

#ifndef MOEPLAN_KERNELS_NARROW_CUH_
#define MOEPLAN_KERNELS_NARROW_CUH_

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"

namespace moep {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kGroupRows = 8;  // rows of x of one m16n8k16
constexpr uint32_t kTileRows = 16;
constexpr uint32_t kNarrowK = 64;  // of a stage
constexpr uint32_t kNarrowRowBytes = kNarrowK * 2;
constexpr uint32_t kNarrowWarps = 6;
constexpr uint32_t kNarrowThreads = kNarrowWarps * kLanes;
constexpr uint32_t kNarrowTotals = 24 * 1024;  // bytes

// Shared memory of a block: a ring for each warp, then the totals of a batch.
template <uint32_t kTiles, uint32_t kGroups>
struct Narrow {
  static constexpr uint32_t kWeightBytes = kTiles * kTileRows * kNarrowRowBytes;
  static constexpr uint32_t kStageBytes =
      kWeightBytes + kGroups * kGroupRows * kNarrowRowBytes;
  static constexpr uint32_t kStages = 36 * 1024 / kStageBytes;
  static constexpr uint32_t kRingBytes = kStages * kStageBytes;
  static constexpr uint32_t kTotalBytes = kGroups * kLanes * sizeof(float4);
};

__host__ __device__ __forceinline__ uint32_t segments_of(uint32_t k) {
  return moep_ceil_div(k, MOEP_SEGMENT_K);
}

template <typename Args>
struct NarrowArgs {
  Args args;
  uint32_t batch;  // tiles
};

// Weights as the kernels see them: rows 0 .. 7 of tile i at low + i tile_step, rows
// 8 .. 15 at high + i tile_step, `pitch` apart. In elements.
struct NarrowWeights {
  const uint16_t* low;
  const uint16_t* high;
  uint64_t pitch, tile_step;
  uint32_t k;
};

struct NarrowRows {
  const uint16_t* data;  // the first row of this pass
  uint64_t stride;
  uint32_t count;  // of this pass
};

// Tiles of a batch and their jobs.
struct NarrowBatch {
  uint32_t first, count;  // tiles
  uint32_t segments, jobs;
};

template <uint32_t kTiles>
__device__ __forceinline__ NarrowBatch narrow_batch(uint32_t first,
                                                    uint32_t count,
                                                    uint32_t k) {
  const uint32_t segments = segments_of(k);
  return {first, count, segments, moep_ceil_div(count, kTiles) * segments};
}

// What a lane copies next: 16 bytes of each of the rows lane / 8 + 4 i.
struct NarrowFeed {
  const uint16_t* low;
  const uint16_t* high;
  uint32_t job;
  uint32_t tiles;  // of the job
  uint32_t k;      // of the next stage
  uint32_t left;   // k of the segment still to copy; 0: nothing more
};

template <uint32_t kTiles>
__device__ __forceinline__ void narrow_open(NarrowFeed& feed,
                                            const NarrowWeights& weights,
                                            const NarrowBatch& batch,
                                            uint32_t job) {
  feed.job = job;
  feed.left = 0;
  if (job >= batch.jobs) return;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t tile = job / batch.segments * kTiles;
  feed.k = job % batch.segments * MOEP_SEGMENT_K;
  feed.left = min(weights.k - feed.k, uint32_t{MOEP_SEGMENT_K});
  feed.tiles = min(kTiles, batch.count - tile);
  const uint64_t offset = (batch.first + tile) * weights.tile_step +
                          lane / 8 * weights.pitch + feed.k + lane % 8 * 8;
  feed.low = weights.low + offset;
  feed.high = weights.high + offset;
}

// On to the next stage, at the end of a job to the warp's next job.
template <uint32_t kTiles>
__device__ __forceinline__ void narrow_next(NarrowFeed& feed,
                                            const NarrowWeights& weights,
                                            const NarrowBatch& batch) {
  feed.low += kNarrowK;
  feed.high += kNarrowK;
  feed.k += kNarrowK;
  feed.left -= min(feed.left, kNarrowK);
  if (feed.left == 0) {
    narrow_open<kTiles>(feed, weights, batch, feed.job + blockDim.x / kLanes);
  }
}

// Where this lane's 16 bytes of row lane / 8 + 4 i go, less i 512: chunk c of row
// r lies at chunk c ^ (r % 8). `i` counts for its parity alone.
__device__ __forceinline__ uint32_t narrow_target(uint32_t i) {
  const uint32_t lane = threadIdx.x % kLanes, row = lane / 8 + i % 2 * 4;
  return lane / 8 * kNarrowRowBytes + (lane % 8 ^ row) * 16;
}

template <uint32_t kTiles>
__device__ __forceinline__ void narrow_copy_weights(
    const NarrowFeed& feed, const NarrowWeights& weights, uint32_t stage) {
  if (threadIdx.x % 8 * 8 >= feed.left) return;
#pragma unroll
  for (uint32_t i = 0; i < kTiles * 4; i++) {
    if (i / 4 >= feed.tiles) break;
    const uint16_t* from = i % 4 < 2 ? feed.low : feed.high;
    cp_async_16(stage + narrow_target(i) + i * 4 * kNarrowRowBytes,
                from + i / 4 * weights.tile_step + i % 2 * 4 * weights.pitch,
                evict_first());
  }
}

template <uint32_t kTiles, uint32_t kGroups>
__device__ __forceinline__ void narrow_copy_rows(const NarrowFeed& feed,
                                                 const NarrowRows& rows,
                                                 uint32_t stage) {
  const uint32_t lane = threadIdx.x % kLanes;
  if (lane % 8 * 8 >= feed.left) return;
  const uint16_t* from =
      rows.data + lane / 8 * rows.stride + feed.k + lane % 8 * 8;
  stage += Narrow<kTiles, kGroups>::kWeightBytes;
#pragma unroll
  for (uint32_t i = 0; i < kGroups * 2; i++) {
    if (lane / 8 + i * 4 >= rows.count) break;
    cp_async_16(stage + narrow_target(i) + i * 4 * kNarrowRowBytes,
                from + i * 4 * rows.stride);
  }
}

// The chains over one stage, `k` of it.
template <uint32_t kTiles, uint32_t kGroups>
__device__ __forceinline__ void narrow_multiply(
    uint32_t stage, uint32_t k, uint32_t groups,
    float (&sum)[kTiles][kGroups][4]) {
  const uint32_t lane = threadIdx.x % kLanes, row = lane % 8;
  const uint32_t a =
      stage + lane % 16 * kNarrowRowBytes + (lane / 16 ^ row) * 16;
  const uint32_t b = stage + Narrow<kTiles, kGroups>::kWeightBytes +
                     row * kNarrowRowBytes + (lane / 8 ^ row) * 16;
#pragma unroll
  for (uint32_t step = 0; step < kNarrowK / MOEP_STEP_K; step += 2) {
    if (step * MOEP_STEP_K >= k) break;
    uint32_t rows[kGroups][4];
#pragma unroll
    for (uint32_t g = 0; g < kGroups; g++) {
      if (g >= groups) break;
      ldmatrix_x4(rows[g], (b ^ step * 32) + g * kGroupRows * kNarrowRowBytes);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      if ((step + i) * MOEP_STEP_K >= k) break;
#pragma unroll
      for (uint32_t t = 0; t < kTiles; t++) {
        uint32_t weights[4];
        ldmatrix_x4(weights,
                    (a ^ (step + i) * 32) + t * kTileRows * kNarrowRowBytes);
#pragma unroll
        for (uint32_t g = 0; g < kGroups; g++) {
          if (g >= groups) break;
          const uint32_t operand[2] = {rows[g][2 * i], rows[g][2 * i + 1]};
          mma_m16n8k16_bf16(sum[t][g], weights, operand);
        }
      }
    }
  }
}

// Sum of a tile's segments, ascending, as this lane has it: rows g and g + 8 of
// the tile, rows 2t and 2t + 1 of the group. totals: [tiles, segments, kGroups,
// 32 lanes].
template <uint32_t kGroups>
__device__ __forceinline__ float4 narrow_sum(const float4* totals,
                                             uint32_t segments, uint32_t tile,
                                             uint32_t group) {
  const float4* from = totals + (tile * segments * kGroups + group) * kLanes +
                       threadIdx.x % kLanes;
  float4 sum = from[0];
  for (uint32_t segment = 1; segment < segments; segment++) {
    const float4 next = from[segment * kGroups * kLanes];
    sum.x = __fadd_rn(sum.x, next.x);
    sum.y = __fadd_rn(sum.y, next.y);
    sum.z = __fadd_rn(sum.z, next.z);
    sum.w = __fadd_rn(sum.w, next.w);
  }
  return sum;
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_NARROW_CUH_
