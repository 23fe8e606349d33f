// Shared memory of a block of the grouped kernel: rings of stages between the warps
// that copy and those that multiply. Wide tiles have a ring for each operand, of 64 k of
// tokens, 256 of scales and 128 of weights a stage; narrow ones have one ring whose
// stages hold 128 or 256 k, and beside it slots of scales.

#ifndef MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_

#include "kernels/grouped_work.cuh"
#include "kernels/tile_order.h"

namespace moep {

constexpr uint32_t kBlockRows = 256;     // of weights
constexpr uint32_t kGroupThreads = 128;  // of a warpgroup
constexpr uint32_t kScaleK = 256;        // of a stage or slot of scales
constexpr uint32_t kScaleRow = kScaleK / 16;
constexpr uint32_t kScaleStage = kBlockRows * kScaleRow;
// K of a stage of a wide tile's rings.
constexpr uint32_t kWideTokens = MOEP_TILE_K;
constexpr uint32_t kWideWeights = MOEP_BLOCK_K;
constexpr uint32_t kMaxStages = 8;  // of one ring

// Where a block's shared memory holds what; the same for host and device.
struct GroupedPipe {
  uint32_t token_stages, weight_stages, scale_stages;
  uint32_t token_stage;  // bytes of one, a multiple of 1024
  uint32_t weight_stage;
  uint32_t region_bytes;  // of each warpgroup: segment sums, then results
  uint32_t warpgroups;

  __host__ __device__ uint32_t weights() const {
    return token_stages * token_stage;
  }
  __host__ __device__ uint32_t scales() const {
    return weights() + weight_stages * weight_stage;
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

// Where 16-byte chunk `chunk` of a row lies in a stage of weights of kK: what a quarter
// warp reads, four chunks of two rows, is in different banks.
template <uint32_t kK>
__device__ __forceinline__ uint32_t weight_place(uint32_t row, uint32_t chunk) {
  constexpr uint32_t kRow = kK / 2;
  return row * kRow + (kRow == 128 ? chunk ^ (row & 1) << 2 : chunk) * 16;
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

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
