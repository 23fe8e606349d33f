// The warpgroup of a block of the grouped kernel that fills the rings.

#ifndef MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_

#include "kernels/grouped_pipe_sm90.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tma_sm90.cuh"

namespace moep {

// Arrivals at a stage's barrier: the copying threads, and one for the bytes of bulk copies.
constexpr uint32_t kScaleCopiers = 32, kWeightCopiers = 64;
constexpr uint32_t kTokenCopiers = 32 + 1;
constexpr uint32_t kBoxCopiers = 32 + 1 + kScaleCopiers;

// The pointer of the warp's first lane, for which the compiler then needs no registers
// of each lane.
__device__ __forceinline__ const uint8_t* warp_pointer(const uint8_t* pointer) {
  const uint64_t bits = reinterpret_cast<uint64_t>(pointer);
  const uint32_t low = __shfl_sync(~0u, static_cast<uint32_t>(bits), 0);
  const uint32_t high = __shfl_sync(~0u, static_cast<uint32_t>(bits >> 32), 0);
  return reinterpret_cast<const uint8_t*>(uint64_t{high} << 32 | low);
}

// Weights of a narrow tile, by a warp's first lane: boxes of the matrices' maps.
template <bool kUp>
struct WeightBoxes {
  const moep_tensor_map* map[2];
  uint32_t row[2];

  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock&,
                                        const GroupedWork& unit) {
    const moep_expert_maps& maps = reinterpret_cast<const moep_expert_maps*>(
        reinterpret_cast<const uint8_t*>(args.site) +
        args.site->maps)[unit.expert];
    map[0] = kUp ? &maps.gate : &maps.down;
    map[1] = kUp ? &maps.up : &maps.down;
    row[0] = unit.tile * (kUp ? 1 : 2) * MOEP_MAP_BOX_ROWS;
    row[1] = row[0] + (kUp ? 0 : MOEP_MAP_BOX_ROWS);
    if (threadIdx.x % 32 != 0) return;
    fence_proxy_tensormap_acquire(map[0]);
    if (kUp) fence_proxy_tensormap_acquire(map[1]);
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    if (threadIdx.x % 32 != 0) return;
    const uint32_t to = block.weights.address(stage);
    const uint32_t full = block.weights.full(stage);
    mbarrier_arrive_expect_tx(full, kBoxes);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      cp_async_bulk_tensor(to + i * (kBoxes / 2), map[i], k0 / 2, row[i], full,
                           evict_first());
    }
  }
};

// What a thread copies of a unit's matrices: every kApart-th of their rows.
template <bool kUp, int kTile, uint32_t kApart>
struct ThreadRows {
  static constexpr uint32_t kRows = kMatrixRows<kUp, kTile> / kApart;
  static constexpr uint32_t kMatrices = kUp ? 2 : 1;
  const uint8_t*
      from[kMatrices];     // the unit's first rows, at the next stage's k
  uint32_t offset[kRows];  // of the thread's bytes

  // bytes [rows, pitch] of each matrix, from the thread's first row and column on.
  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedWork& unit,
                                        const uint8_t* moep_nvfp4::*bytes,
                                        uint32_t pitch, uint32_t row,
                                        uint32_t column) {
    const uint32_t first = first_row<kUp, kTile>(unit.tile);
    const uint32_t last = last_row<kUp>(args) - first;
#pragma unroll
    for (uint32_t m = 0; m < kMatrices; m++) {
      from[m] = warp_pointer(matrix_of<kUp>(args, unit, m).*bytes +
                             uint64_t{first} * pitch);
    }
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      const uint32_t own = row_after<kUp, kTile>(i * kApart + row);
      offset[i] = min(own, last) * pitch + column;
    }
  }
};

// Weights of a wide tile, by kWeightCopiers threads: a chunk of each row in 16 bytes.
template <bool kUp, int kTile>
struct WeightCopy {
  static constexpr uint32_t kRow = kWideWeights / 2, kChunks = kRow / 16;
  static constexpr uint32_t kApart = kWeightCopiers / kChunks;
  ThreadRows<kUp, kTile, kApart> rows;

  static __device__ __forceinline__ uint32_t row() {
    return threadIdx.x % kWeightCopiers / kChunks;
  }
  static __device__ __forceinline__ uint32_t chunk() {
    return threadIdx.x % kChunks;
  }
  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock& block,
                                        const GroupedWork& unit) {
    rows.start(args, unit, &moep_nvfp4::weight, block.k / 2, row(),
               chunk() * 16);
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    // Through a shuffle: where ptxas 13.0 knows a part of the address to be the warp's,
    // it emits copies with a policy that are illegal instructions.
    const uint32_t to = __shfl_sync(~0u, block.weights.address(stage), 0) +
                        row() * kRow + chunk() * 16;
    const bool here = k0 + chunk() * 32 < block.k;
#pragma unroll
    for (uint32_t m = 0; m < rows.kMatrices; m++) {
#pragma unroll
      for (uint32_t i = 0; i < rows.kRows; i++) {
        cp_async_16_or_zero(to + (m * rows.kRows + i) * kApart * kRow,
                            rows.from[m] + rows.offset[i], here, evict_first());
      }
      rows.from[m] += kRow;
    }
  }
};

// Scales, kScaleK a stage, by a warp: kScaleCopiers.
template <bool kUp, int kTile>
struct ScaleCopy {
  ThreadRows<kUp, kTile, kScaleCopiers> rows;

  static __device__ __forceinline__ uint32_t lane() {
    return threadIdx.x % kScaleCopiers;
  }
  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock& block,
                                        const GroupedWork& unit) {
    rows.start(args, unit, &moep_nvfp4::scale, block.k / 16, lane(), 0);
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    const uint32_t to = block.scales.address(stage) + lane() * kScaleRow;
    const uint32_t bytes = min(block.k - k0, kScaleK) / 16;
#pragma unroll
    for (uint32_t m = 0; m < rows.kMatrices; m++) {
#pragma unroll
      for (uint32_t i = 0; i < rows.kRows; i++) {
        const uint32_t place =
            to + (m * rows.kRows + i) * kScaleCopiers * kScaleRow;
        const uint8_t* at = rows.from[m] + rows.offset[i];
        if (block.k % kScaleK == 0) {
          cp_async_16(place, at);
        } else {
#pragma unroll 1
          for (uint32_t b = 0; b < bytes; b += 4) cp_async_4(place + b, at + b);
        }
      }
      rows.from[m] += kScaleRow;
    }
  }
};

// Activations of a narrow tile, kK a stage, by thread 0.
template <bool kUp, uint32_t kK>
struct TokenCopy {
  static constexpr uint32_t kTiles = kK / MOEP_TILE_K;
  const uint16_t* from;
  uint32_t bytes;  // of a tile
  uint64_t pitch;  // elements from a tile to the next

  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock&,
                                        const GroupedWork& unit) {
    from = (kUp ? args.slot_x : args.h) + uint64_t{unit.position} * MOEP_TILE_K;
    bytes = unit.tokens * MOEP_TILE_ROW_BYTES;
    pitch = uint64_t{args.slots} * MOEP_TILE_K;
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    if (threadIdx.x != 0) return;
    const uint32_t left = (moep_padded_k(block.k) - k0) / MOEP_TILE_K;
    const uint32_t tiles = min(left, kTiles);
    mbarrier_arrive_expect_tx(block.tokens.full(stage), tiles * bytes);
    for (uint32_t i = 0; i < tiles; i++) {
      cp_async_bulk(
          block.tokens.address(stage) + i * (block.tokens.bytes / kTiles), from,
          bytes, block.tokens.full(stage));
      from += pitch;
    }
  }
};

// Activations of a wide tile, by thread 0 of each block of a pair: the first has the
// first half of the tokens, and both get both.
template <bool kUp>
struct TokenHalves {
  static_assert(kWideTokens == MOEP_TILE_K, "a tile a stage");
  const uint16_t* from;
  uint32_t place, own;  // bytes of a stage: this block's first, how many
  uint32_t bytes;       // of both blocks
  uint64_t pitch;       // elements from a tile to the next

  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock& block,
                                        const GroupedWork& unit) {
    const uint32_t half = (unit.tokens + block.paired) >> block.paired;
    const uint32_t first = (blockIdx.x & block.paired) * half;
    from = (kUp ? args.slot_x : args.h) +
           uint64_t{unit.position + first} * MOEP_TILE_K;
    place = first * MOEP_TILE_ROW_BYTES;
    own = min(half, unit.tokens - first) * MOEP_TILE_ROW_BYTES;
    bytes = unit.tokens * MOEP_TILE_ROW_BYTES;
    pitch = uint64_t{args.slots} * MOEP_TILE_K;
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t,
                                       uint32_t stage) {
    if (threadIdx.x != 0) return;
    mbarrier_arrive_expect_tx(block.tokens.full(stage), bytes);
    if (own != 0) {  // of one token the second block has none
      cp_async_bulk_multicast(block.tokens.address(stage) + place, from, own,
                              block.tokens.full(stage), 1 + 2 * block.paired);
    }
    from += pitch;
  }
};

// Fills a ring with stages of kK, for each unit of the block in order.
template <uint32_t kK, typename... Copies>
__device__ __forceinline__ void fill_ring(const moep_grouped_args& args,
                                          const GroupedBlock& block,
                                          const Ring& ring, Copies... copies) {
  const uint32_t padded = moep_padded_k(block.k);
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    const GroupedWork unit = unit_at(args, block, index);
    (copies.start(args, block, unit), ...);
    for (uint32_t k0 = 0; k0 < padded; k0 += kK) {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      (copies.copy(block, k0, place.stage), ...);
      cp_async_mbarrier_arrive_noinc(ring.full(place.stage));
      place.advance(ring);
    }
  });
  cp_async_commit_group();
  cp_async_wait_group<0>();
}

// Narrow tiles: one warp for tokens, one for weights, one for their scales.
template <bool kUp, int kTile>
__device__ __forceinline__ void copy_narrow(const moep_grouped_args& args,
                                            const GroupedBlock& block) {
  const uint32_t warp = threadIdx.x / 32;
  if (warp == 0) {
    fill_ring<kNarrowTokens<kTile>>(args, block, block.tokens,
                                    TokenCopy<kUp, kNarrowTokens<kTile>>());
  } else if (warp == 1) {
    fill_ring<kNarrowWeights>(args, block, block.weights, WeightBoxes<kUp>());
  } else if (warp == 2) {
    fill_ring<kNarrowWeights>(args, block, block.weights,
                              ScaleCopy<kUp, kTile>());
  }
}

// Wide tiles, whose stages of weights are too small for boxes: two warps for weights.
template <bool kUp, int kTile>
__device__ __forceinline__ void copy_wide(const moep_grouped_args& args,
                                          const GroupedBlock& block) {
  const uint32_t warp = threadIdx.x / 32;
  if (warp >= 2) {
    fill_ring<kWideWeights>(args, block, block.weights,
                            WeightCopy<kUp, kTile>());
  } else if (warp == 1) {
    fill_ring<kScaleK>(args, block, block.scales, ScaleCopy<kUp, kTile>());
  } else {
    fill_ring<kWideTokens>(args, block, block.tokens, TokenHalves<kUp>());
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
