// Shared memory of a block of the grouped kernel and the warps that fill it: one
// thread copies activations, which lie in tile order, one warp scales, two weights.
// Wide tiles have a ring for each, of 64, 256 and 128 k a stage; narrow ones have one
// ring whose stages hold 256 k of all three.

#ifndef MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_

#include "kernels/grouped_work.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tile_order.h"
#include "kernels/tma_sm90.cuh"

namespace moep {

constexpr uint32_t kBlockRows = 256;     // of weights
constexpr uint32_t kGroupThreads = 128;  // of a warpgroup
constexpr uint32_t kNarrowRow = 128;     // bytes of a weight row in a stage
constexpr uint32_t kWideRow = 64;
constexpr uint32_t kScaleK = 256;
constexpr uint32_t kScaleRow = kScaleK / 16;
constexpr uint32_t kScaleStage = kBlockRows * kScaleRow;
constexpr uint32_t kMaxStages = 8;  // of one ring

// Where a block's shared memory holds what; the same for host and device.
struct GroupedPipe {
  uint32_t token_stages, weight_stages, scale_stages;
  uint32_t token_stage;   // bytes of one, a multiple of 1024
  uint32_t weight_row;    // bytes of a row in a stage of weights
  uint32_t region_bytes;  // of each warpgroup: segment sums, then results
  uint32_t warpgroups;

  __host__ __device__ uint32_t weights() const {
    return token_stages * token_stage;
  }
  __host__ __device__ uint32_t scales() const {
    return weights() + weight_stages * kBlockRows * weight_row;
  }
  __host__ __device__ uint32_t regions() const {
    return scales() + scale_stages * kScaleStage;
  }
  __host__ __device__ uint32_t barriers() const {
    return regions() + warpgroups * region_bytes;
  }
  __host__ __device__ uint32_t units() const {
    return barriers() + 3 * 2 * kMaxStages * 8;
  }
  __host__ __device__ uint32_t bytes() const {
    return units() + (MOEP_MAX_EXPERTS + 1) * 4;
  }
};

// One ring in shared memory: stages, and for each a barrier that it is full and one
// that it is empty.
struct Ring {
  uint32_t stages;    // address of the first
  uint32_t bytes;     // of one
  uint32_t barriers;  // full[kMaxStages], then empty[kMaxStages]
  uint32_t count;

  __device__ __forceinline__ uint32_t full(uint32_t stage) const {
    return barriers + stage * 8;
  }
  __device__ __forceinline__ uint32_t empty(uint32_t stage) const {
    return barriers + (kMaxStages + stage) * 8;
  }
  __device__ __forceinline__ uint32_t address(uint32_t stage) const {
    return stages + stage * bytes;
  }
};

// Which stage is next, and the parity of its barriers' phase.
struct RingPlace {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void advance(const Ring& ring) {
    if (++stage == ring.count) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Warpgroup 0 copies: the oldest warps go first. Of the others, from 0.
__device__ __forceinline__ uint32_t consumer_group() {
  return threadIdx.x / kGroupThreads - 1;
}

// Where 16-byte chunk `chunk` of a row lies in a narrow stage of weights: two rows of a
// quarter warp are in different banks.
__device__ __forceinline__ uint32_t narrow_place(uint32_t row, uint32_t chunk) {
  return row * kNarrowRow + (chunk ^ (row & 1) << 2) * 16;
}

// What a block works from.
struct GroupedBlock {
  Ring tokens, weights, scales;
  uint32_t region;         // of warpgroup 0
  const uint32_t* before;  // token tiles, as grouped_tiles leaves them
  uint32_t k, weight_tiles;
};

// Weight row of row `r` of the block's tile. up: m16 tile i has columns
// 32 (i % 4) + 8 (i / 4) + 0..7, gate then up: each warpgroup's columns are then side by
// side in p order.
template <bool kUp>
__device__ __forceinline__ uint32_t weight_row(uint32_t row_tile, uint32_t r) {
  if (!kUp) return row_tile * kBlockRows + r;
  const uint32_t i = r / 16;
  return row_tile * (kBlockRows / 2) + i % 4 * 32 + i / 4 * 8 + r % 8;
}

__device__ __forceinline__ GroupedWork unit_at(const moep_grouped_args& args,
                                               const GroupedBlock& block,
                                               uint32_t index) {
  return grouped_work(args, args.site->expert_count, block.weight_tiles,
                      block.before, index);
}

// Calls use(index) for each unit of this block, in order.
template <typename Use>
__device__ __forceinline__ void each_unit(const moep_grouped_args& args,
                                          const GroupedBlock& block, Use use) {
  for (uint32_t index = blockIdx.x;
       index < block.before[args.site->expert_count] * block.weight_tiles;
       index += gridDim.x) {
    use(index);
  }
}

// The projection whose rows r % 16 lie at.
template <bool kUp>
__device__ __forceinline__ const moep_nvfp4& matrix_of(
    const moep_grouped_args& args, const GroupedWork& unit, uint32_t r) {
  const moep_expert& expert = args.site->experts[unit.expert];
  return !kUp ? expert.down : r % 16 < 8 ? expert.gate : expert.up;
}

template <bool kUp>
__device__ __forceinline__ uint32_t last_row(const moep_grouped_args& args) {
  return (kUp ? args.inter : args.hidden) - 1;
}

// By 64 threads; kRow bytes of a row make a stage.
template <bool kUp, uint32_t kRow>
__device__ __forceinline__ void copy_weights(const moep_grouped_args& args,
                                             const GroupedBlock& block) {
  constexpr uint32_t kChunks = kRow / 16, kRows = 64 / kChunks;
  const uint32_t thread = threadIdx.x % 64;
  const uint32_t row0 = thread / kChunks, chunk = thread % kChunks;
  const uint32_t pitch = block.k / 2, last = last_row<kUp>(args);
  const uint64_t policy = createpolicy_evict_first();
  const Ring& ring = block.weights;
  const uint32_t to0 =
      kRow == kNarrowRow ? narrow_place(row0, chunk) : row0 * kRow + chunk * 16;
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    const GroupedWork unit = unit_at(args, block, index);
    const uint8_t* low = matrix_of<kUp>(args, unit, 0).weight + chunk * 16;
    const uint8_t* high = matrix_of<kUp>(args, unit, 8).weight + chunk * 16;
    for (uint32_t k0 = 0; k0 < block.k; k0 += 2 * kRow) {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      const uint32_t to = ring.address(place.stage) + to0;
      const bool here = k0 + chunk * 32 < block.k;
#pragma unroll 4
      for (uint32_t i = 0; i < kBlockRows / kRows; i++) {
        const uint32_t r = i * kRows + row0;
        const uint32_t row = min(weight_row<kUp>(unit.tile, r), last);
        cp_async_16_or_zero(to + i * kRows * kRow,
                            (r % 16 < 8 ? low : high) + uint64_t{row} * pitch,
                            here, policy);
      }
      cp_async_mbarrier_arrive_noinc(ring.full(place.stage));
      place.advance(ring);
      low += kRow;
      high += kRow;
    }
  });
  cp_async_commit_group();
  cp_async_wait_group<0>();
}

// By one warp: pieces as wide as the rows' alignment allows.
template <bool kUp>
__device__ __forceinline__ void copy_scales(const moep_grouped_args& args,
                                            const GroupedBlock& block) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t pitch = block.k / 16, last = last_row<kUp>(args);
  const Ring& ring = block.scales;
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    const GroupedWork unit = unit_at(args, block, index);
    const uint8_t* from = matrix_of<kUp>(args, unit, lane).scale;
    for (uint32_t k0 = 0; k0 < block.k; k0 += kScaleK) {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      const uint32_t to = ring.address(place.stage) + lane * kScaleRow;
      const uint32_t bytes = min(block.k - k0, kScaleK) / 16;
#pragma unroll
      for (uint32_t i = 0; i < kBlockRows / 32; i++) {
        const uint32_t row =
            min(weight_row<kUp>(unit.tile, i * 32 + lane), last);
        const uint8_t* at = from + uint64_t{row} * pitch;
        const uint32_t target = to + i * 32 * kScaleRow;
        if (pitch % 16 == 0) {
          cp_async_16(target, at);
        } else {
          for (uint32_t b = 0; b < bytes; b += 4)
            cp_async_4(target + b, at + b);
        }
      }
      cp_async_mbarrier_arrive_noinc(ring.full(place.stage));
      place.advance(ring);
      from += kScaleRow;
    }
  });
  cp_async_commit_group();
  cp_async_wait_group<0>();
}

// By one thread; kTiles tiles of 64 k make a stage.
template <bool kUp, uint32_t kTiles>
__device__ __forceinline__ void copy_tokens(const moep_grouped_args& args,
                                            const GroupedBlock& block) {
  const uint32_t tiles = moep_padded_k(block.k) / MOEP_TILE_K;
  const Ring& ring = block.tokens;
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    const GroupedWork unit = unit_at(args, block, index);
    const uint32_t bytes = unit.tokens * MOEP_TILE_ROW_BYTES;
    const uint16_t* from =
        (kUp ? args.slot_x : args.h) + uint64_t{unit.position} * MOEP_TILE_K;
    for (uint32_t first = 0; first < tiles; first += kTiles) {
      const uint32_t here = min(tiles - first, kTiles);
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      mbarrier_arrive_expect_tx(ring.full(place.stage), here * bytes);
      for (uint32_t i = 0; i < here; i++) {
        cp_async_bulk(ring.address(place.stage) + i * (ring.bytes / kTiles),
                      from, bytes, ring.full(place.stage));
        from += uint64_t{args.slots} * MOEP_TILE_K;
      }
      place.advance(ring);
    }
  });
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
