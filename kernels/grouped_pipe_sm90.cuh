// Shared memory of a block of the grouped kernel and the warps that fill it.
// Activations lie in tile order. Wide tiles have a ring for each operand, of 64 k of
// tokens, 256 k of scales and 128 k of weights a stage; narrow ones have one ring whose
// stages hold 256 k of all three.

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

// Copies of one unit's weights by kThreads threads; kRow bytes of a row make a stage.
template <bool kUp, uint32_t kRow, uint32_t kThreads>
struct WeightCopy {
  static constexpr uint32_t kChunks = kRow / 16, kRows = kThreads / kChunks;
  const uint8_t* low;  // of the first k to copy
  const uint8_t* high;
  uint32_t tile;

  __device__ __forceinline__ WeightCopy(const moep_grouped_args& args,
                                        const GroupedWork& unit)
      : low(matrix_of<kUp>(args, unit, 0).weight + chunk() * 16),
        high(matrix_of<kUp>(args, unit, 8).weight + chunk() * 16),
        tile(unit.tile) {}
  static __device__ __forceinline__ uint32_t chunk() {
    return threadIdx.x % kThreads % kChunks;
  }
  // The stage from k0 on, of k.
  __device__ __forceinline__ void stage(const moep_grouped_args& args,
                                        uint32_t k, uint32_t k0,
                                        uint32_t stage) {
    const uint32_t row0 = threadIdx.x % kThreads / kChunks;
    const uint32_t last = last_row<kUp>(args);
    const uint32_t to =
        stage + (kRow == kNarrowRow ? narrow_place(row0, chunk())
                                    : row0 * kRow + chunk() * 16);
    const uint64_t policy = createpolicy_evict_first();
    const bool here = k0 + chunk() * 32 < k;
#pragma unroll 4
    for (uint32_t i = 0; i < kBlockRows / kRows; i++) {
      const uint32_t r = i * kRows + row0;
      const uint32_t row = min(weight_row<kUp>(tile, r), last);
      cp_async_16_or_zero(to + i * kRows * kRow,
                          (r % 16 < 8 ? low : high) + uint64_t{row} * (k / 2),
                          here, policy);
    }
    low += kRow;
    high += kRow;
  }
};

// The same of scales: pieces as wide as the rows' alignment allows.
template <bool kUp, uint32_t kThreads>
struct ScaleCopy {
  const uint8_t* from;
  uint32_t tile;

  __device__ __forceinline__ ScaleCopy(const moep_grouped_args& args,
                                       const GroupedWork& unit)
      : from(matrix_of<kUp>(args, unit, threadIdx.x).scale), tile(unit.tile) {}
  __device__ __forceinline__ void stage(const moep_grouped_args& args,
                                        uint32_t k, uint32_t k0,
                                        uint32_t stage) {
    const uint32_t pitch = k / 16, bytes = min(k - k0, kScaleK) / 16;
    const uint32_t last = last_row<kUp>(args), row0 = threadIdx.x % kThreads;
#pragma unroll
    for (uint32_t i = 0; i < kBlockRows / kThreads; i++) {
      const uint32_t r = i * kThreads + row0;
      const uint32_t row = min(weight_row<kUp>(tile, r), last);
      const uint8_t* at = from + uint64_t{row} * pitch;
      const uint32_t to = stage + r * kScaleRow;
      if (pitch % 16 == 0) {
        cp_async_16(to, at);
      } else {
        for (uint32_t b = 0; b < bytes; b += 4) cp_async_4(to + b, at + b);
      }
    }
    from += kScaleRow;
  }
};

// The same of activations, by one thread; kTiles tiles of 64 k make a stage.
template <bool kUp, uint32_t kTiles>
struct TokenCopy {
  const uint16_t* from;
  uint32_t bytes;  // of a tile

  __device__ __forceinline__ TokenCopy(const moep_grouped_args& args,
                                       const GroupedWork& unit)
      : from((kUp ? args.slot_x : args.h) +
             uint64_t{unit.position} * MOEP_TILE_K),
        bytes(unit.tokens * MOEP_TILE_ROW_BYTES) {}
  __device__ __forceinline__ void stage(const moep_grouped_args& args,
                                        uint32_t k, uint32_t k0,
                                        const Ring& ring, uint32_t stage) {
    const uint32_t tiles = min((moep_padded_k(k) - k0) / MOEP_TILE_K, kTiles);
    mbarrier_arrive_expect_tx(ring.full(stage), tiles * bytes);
    for (uint32_t i = 0; i < tiles; i++) {
      cp_async_bulk(ring.address(stage) + i * (ring.bytes / kTiles), from,
                    bytes, ring.full(stage));
      from += uint64_t{args.slots} * MOEP_TILE_K;
    }
  }
};

// Each unit of the block, a stage of `step` k at a time: make(unit) gives what is
// then called with (k0, stage) once the stage is empty.
template <typename Make>
__device__ __forceinline__ void each_stage(const moep_grouped_args& args,
                                           const GroupedBlock& block,
                                           const Ring& ring, uint32_t step,
                                           Make make) {
  const uint32_t padded = moep_padded_k(block.k);
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    auto copy = make(unit_at(args, block, index));
    for (uint32_t k0 = 0; k0 < padded; k0 += step) {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      copy(k0, place.stage);
      place.advance(ring);
    }
  });
  cp_async_commit_group();
  cp_async_wait_group<0>();
}

// One ring: by a warpgroup.
template <bool kUp>
__device__ __forceinline__ void copy_together(const moep_grouped_args& args,
                                              const GroupedBlock& block) {
  each_stage(args, block, block.tokens, kScaleK, [&](const GroupedWork& unit) {
    return
        [&args, &block, weights = WeightCopy<kUp, kNarrowRow, 128>(args, unit),
         scales = ScaleCopy<kUp, 128>(args, unit),
         tokens = TokenCopy<kUp, 4>(args, unit)](uint32_t k0,
                                                 uint32_t stage) mutable {
          if (threadIdx.x == 0)
            tokens.stage(args, block.k, k0, block.tokens, stage);
          weights.stage(args, block.k, k0, block.weights.address(stage));
          scales.stage(args, block.k, k0, block.scales.address(stage));
          cp_async_mbarrier_arrive_noinc(block.tokens.full(stage));
        };
  });
}

// A ring each: by one thread, a warp, and two warps.
template <bool kUp>
__device__ __forceinline__ void copy_apart(const moep_grouped_args& args,
                                           const GroupedBlock& block) {
  if (threadIdx.x / 64 == 1) {
    each_stage(
        args, block, block.weights, MOEP_BLOCK_K, [&](const GroupedWork& unit) {
          return
              [&args, &block, copy = WeightCopy<kUp, kWideRow, 64>(args, unit)](
                  uint32_t k0, uint32_t stage) mutable {
                copy.stage(args, block.k, k0, block.weights.address(stage));
                cp_async_mbarrier_arrive_noinc(block.weights.full(stage));
              };
        });
  } else if (threadIdx.x / 32 == 1) {
    each_stage(args, block, block.scales, kScaleK,
               [&](const GroupedWork& unit) {
                 return [&args, &block, copy = ScaleCopy<kUp, 32>(args, unit)](
                            uint32_t k0, uint32_t stage) mutable {
                   copy.stage(args, block.k, k0, block.scales.address(stage));
                   cp_async_mbarrier_arrive_noinc(block.scales.full(stage));
                 };
               });
  } else if (threadIdx.x == 0) {
    each_stage(args, block, block.tokens, MOEP_TILE_K,
               [&](const GroupedWork& unit) {
                 return [&args, &block, copy = TokenCopy<kUp, 1>(args, unit)](
                            uint32_t k0, uint32_t stage) mutable {
                   copy.stage(args, block.k, k0, block.tokens, stage);
                 };
               });
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
