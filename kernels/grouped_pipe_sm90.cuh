// Shared memory of a block of the grouped kernel: rings of stages between the warps
// that copy and those that multiply. Wide tiles have a ring for each operand, of 64 k of
// tokens, 256 of scales and 128 of weights a stage; narrow ones have 256 k of weights
// and scales in a stage, and 128 or 256 of tokens.
//
// Wide tiles are worked on by pairs of blocks, clusters: units of the same tokens and
// of neighbouring tiles of weights at the same time. Each block fetches its half of the
// tokens into the shared memory of both.

#ifndef MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_

#include "kernels/grouped_work.cuh"
#include "kernels/tile_order.h"

namespace moep {

constexpr uint32_t kGroupThreads = 128;  // of a warpgroup
constexpr uint32_t kScaleK = 256;        // of a stage of scales
constexpr uint32_t kScaleRow = kScaleK / 16;

// A tile's kernel: kWarpgroups of kM m64 tiles each multiply, another copies.
template <int kTile>
struct Shape {
  static constexpr bool kWide = kTile > 80;
  static constexpr int kM = kWide && kTile <= 128 ? 2 : 1;
  static constexpr uint32_t kWarpgroups = kWide ? 2 : 4;
  static constexpr uint32_t kThreads = (kWarpgroups + 1) * kGroupThreads;
  static constexpr uint32_t kGroups = kWarpgroups * kM;  // m64 tiles
  static constexpr uint32_t kRows = kGroups * 64;        // of weights
  static constexpr uint32_t kScaleStage = kRows * kScaleRow;
};

// K of a stage of a wide tile's rings.
constexpr uint32_t kWideTokens = MOEP_TILE_K;
constexpr uint32_t kWideWeights = MOEP_BLOCK_K;
// Of a narrow tile's: weights with their scales behind them, tokens by the tile.
constexpr uint32_t kNarrowWeights = kScaleK;
constexpr uint32_t kBoxRow = kNarrowWeights / 2;
constexpr uint32_t kBoxes = 2 * MOEP_MAP_BOX_ROWS * kBoxRow;
static_assert(kBoxRow == MOEP_MAP_BOX_BYTES &&
                  Shape<8>::kRows == 2 * MOEP_MAP_BOX_ROWS,
              "two boxes");
template <int kTile>
constexpr uint32_t kNarrowTokens = (kTile > 48 ? 1 : 2) * MOEP_BLOCK_K;
constexpr uint32_t kMaxStages = 8;  // of one ring

// Where a block's shared memory holds what; the same for host and device.
struct GroupedPipe {
  uint32_t token_stages, weight_stages, scale_stages;
  uint32_t token_stage;  // bytes of one, a multiple of 1024
  uint32_t weight_stage, scale_stage;
  uint32_t region_bytes;  // of each warpgroup: segment sums, then results
  uint32_t warpgroups;

  __host__ __device__ uint32_t weights() const {
    return token_stages * token_stage;
  }
  __host__ __device__ uint32_t scales() const {
    return weights() + weight_stages * weight_stage;
  }
  __host__ __device__ uint32_t regions() const {
    return scales() + scale_stages * scale_stage;
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

// Row r % 8 of an eight that lane group g = lane / 4 has: the two rows that a quarter
// warp reads are 5 apart (^), so that they lie in different banks, whether rows are
// 64 bytes apart or 128 bytes with a swizzle.
__device__ __forceinline__ uint32_t lane_row() {
  const uint32_t g = threadIdx.x % 32 / 4;
  return g / 2 ^ g % 2 * 5;
}

// What a block works from.
struct GroupedBlock {
  Ring tokens, weights, scales;
  uint32_t region;         // of warpgroup 0
  const uint32_t* before;  // token tiles, as grouped_tiles leaves them
  uint32_t k, weight_tiles;
  // 1: blocks 2 i and 2 i + 1 are a pair, with neighbouring tiles of the weights and the
  // same tokens; the grid and weight_tiles are even. Else 0.
  uint32_t paired;
};

// The block's rows of each matrix it reads: one, or gate and up.
template <bool kUp, int kTile>
constexpr uint32_t kMatrixRows = Shape<kTile>::kRows / (kUp ? 2 : 1);

// A block's rows are some columns of gate, then the same of up; or rows of down. An m16
// tile of the tensor core has 8 of gate and the 8 of up, or 16 of down; this is its
// first row, of this warp's tile m of kM. The columns of a warpgroup are then side by
// side in p order.
template <bool kUp, int kTile>
__device__ __forceinline__ uint32_t tile_row(uint32_t m) {
  using S = Shape<kTile>;
  const uint32_t group = consumer_group() * S::kM + m;
  const uint32_t warp = threadIdx.x % kGroupThreads / 32;
  return kUp ? warp * (S::kGroups * 8) + group * 8 : group * 64 + warp * 16;
}
// From a lane's first row in it to the second.
template <bool kUp, int kTile>
constexpr uint32_t kRowsApart = kUp ? kMatrixRows<true, kTile> : 8;

// Tiles of the weights to a block of 128 columns of gate and up: two of 64 have
// alternate sixteens of it, so that each is side by side in p order.
template <int kTile>
constexpr uint32_t kSharing = MOEP_BLOCK_K / kMatrixRows<true, kTile>;

// Where a tile of the weights begins in its matrix, and how far its row r is from there.
template <bool kUp, int kTile>
__device__ __forceinline__ uint32_t first_row(uint32_t tile) {
  constexpr uint32_t kShare = kUp ? kSharing<kTile> : 1;
  constexpr uint32_t kSpan = kShare * kMatrixRows<kUp, kTile>;
  return tile / kShare * kSpan + tile % kShare * (32 / kShare);
}
template <bool kUp, int kTile>
__device__ __forceinline__ uint32_t row_after(uint32_t r) {
  constexpr uint32_t kTogether = 32 / kSharing<kTile>;
  if (!kUp || kTogether == 32) return r;
  return r / kTogether * 32 + r % kTogether;
}

// Tiles of the weights' rows.
template <bool kUp, int kTile>
__host__ __device__ __forceinline__ uint32_t
weight_tiles(const moep_grouped_args& args) {
  return kUp ? moep_ceil_div(args.inter, MOEP_BLOCK_K) * kSharing<kTile>
             : moep_ceil_div(args.hidden, Shape<kTile>::kRows);
}

__device__ __forceinline__ GroupedWork unit_at(const moep_grouped_args& args,
                                               const GroupedBlock& block,
                                               uint32_t index) {
  GroupedWork unit = grouped_work(args, args.site->expert_count,
                                  block.weight_tiles >> block.paired,
                                  block.before, index >> block.paired);
  if (block.paired != 0) unit.tile = unit.tile * 2 + index % 2;
  return unit;
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

// Matrix i of those that a unit reads.
template <bool kUp>
__device__ __forceinline__ const moep_nvfp4& matrix_of(
    const moep_grouped_args& args, const GroupedWork& unit, uint32_t i) {
  const moep_expert& expert = args.site->experts[unit.expert];
  return !kUp ? expert.down : i == 0 ? expert.gate : expert.up;
}

template <bool kUp>
__device__ __forceinline__ uint32_t last_row(const moep_grouped_args& args) {
  return (kUp ? args.inter : args.hidden) - 1;
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_PIPE_SM90_CUH_
