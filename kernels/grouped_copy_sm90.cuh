// The warpgroup of a block of the grouped kernel that fills the rings.

#ifndef MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_

#include "kernels/grouped_pipe_sm90.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tma_sm90.cuh"

namespace moep {

// The pointer of the warp's first lane, for which the compiler then needs no registers
// of each lane.
__device__ __forceinline__ const uint8_t* warp_pointer(const uint8_t* pointer) {
  const uint64_t bits = reinterpret_cast<uint64_t>(pointer);
  const uint32_t low = __shfl_sync(~0u, static_cast<uint32_t>(bits), 0);
  const uint32_t high = __shfl_sync(~0u, static_cast<uint32_t>(bits >> 32), 0);
  return reinterpret_cast<const uint8_t*>(uint64_t{high} << 32 | low);
}

// Weights, kK a stage, by kThreads threads. A thread copies one chunk of every 16th or
// 32nd row, so that its rows are of one projection, and its warp's.
template <bool kUp, uint32_t kK, uint32_t kThreads>
struct WeightCopy {
  static constexpr uint32_t kChunks = kK / 32, kApart = kThreads / kChunks;
  static constexpr uint32_t kRows = kBlockRows / kApart;
  static_assert(kApart % 16 == 0 && 32 / kChunks <= 8, "one projection");
  const uint8_t* from;     // the tile's first row, at the next stage's k
  uint32_t offset[kRows];  // of the thread's chunks

  static __device__ __forceinline__ uint32_t row() {
    return threadIdx.x % kThreads / kChunks;
  }
  static __device__ __forceinline__ uint32_t chunk() {
    return threadIdx.x % kChunks;
  }
  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock& block,
                                        const GroupedWork& unit) {
    const uint32_t pitch = block.k / 2, first = weight_row<kUp>(unit.tile, 0);
    const uint32_t last = last_row<kUp>(args) - first;
    from = warp_pointer(matrix_of<kUp>(args, unit, row()).weight +
                        uint64_t{first} * pitch);
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      offset[i] = min(weight_row<kUp>(0, i * kApart + row()), last) * pitch +
                  chunk() * 16;
    }
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    const uint32_t to =
        block.weights.address(stage) + weight_place<kK>(row(), chunk());
    const bool here = k0 + chunk() * 32 < block.k;
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      cp_async_16_or_zero(to + i * kApart * (kK / 2), from + offset[i], here,
                          evict_first());
    }
    from += kK / 2;
  }
};

// Scales, by kThreads threads: kScaleK into the next slot wherever a stage begins that
// much, so that most rows' are one copy of 16 bytes. There are as many slots as stages:
// between two uses of a slot lies at least one use of each stage.
template <bool kUp, uint32_t kThreads>
struct ScaleCopy {
  static constexpr uint32_t kRows = kBlockRows / kThreads;
  const uint8_t* from;
  uint32_t offset[kRows];
  RingPlace slot;

  __device__ __forceinline__ void start(const moep_grouped_args& args,
                                        const GroupedBlock& block,
                                        const GroupedWork& unit) {
    const uint32_t pitch = block.k / 16, first = weight_row<kUp>(unit.tile, 0);
    const uint32_t last = last_row<kUp>(args) - first;
    const uint32_t thread = threadIdx.x % kThreads;
    from = matrix_of<kUp>(args, unit, thread).scale + uint64_t{first} * pitch;
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      offset[i] = min(weight_row<kUp>(0, i * kThreads + thread), last) * pitch;
    }
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t) {
    if (k0 % kScaleK != 0) return;
    const uint32_t to =
        block.scales.address(slot.stage) + threadIdx.x % kThreads * kScaleRow;
    const uint32_t bytes = min(block.k - k0, kScaleK) / 16;
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      const uint32_t place = to + i * kThreads * kScaleRow;
      const uint8_t* at = from + offset[i];
      if (block.k % kScaleK == 0) {
        cp_async_16(place, at);
      } else {
#pragma unroll 1
        for (uint32_t b = 0; b < bytes; b += 4) cp_async_4(place + b, at + b);
      }
    }
    from += kScaleRow;
    slot.advance(block.scales);
  }
};

// Activations, kK a stage, by thread 0.
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

// Arrivals at a stage's barrier: the copying threads, and one for the bytes of tokens.
constexpr uint32_t kNarrowCopiers = kGroupThreads + 1;
constexpr uint32_t kTokenCopiers = 32 + 1, kWeightCopiers = 64,
                   kScaleCopiers = 32;

// One ring, by all.
template <bool kUp, uint32_t kK>
__device__ __forceinline__ void copy_together(const moep_grouped_args& args,
                                              const GroupedBlock& block) {
  fill_ring<kK>(args, block, block.tokens, TokenCopy<kUp, kK>(),
                WeightCopy<kUp, kK, kGroupThreads>(),
                ScaleCopy<kUp, kGroupThreads>());
}

// Three rings: one warp for tokens, one for scales, two for weights.
template <bool kUp>
__device__ __forceinline__ void copy_apart(const moep_grouped_args& args,
                                           const GroupedBlock& block) {
  const uint32_t warp = threadIdx.x / 32;
  if (warp >= 2) {
    fill_ring<kWideWeights>(args, block, block.weights,
                            WeightCopy<kUp, kWideWeights, kWeightCopiers>());
  } else if (warp == 1) {
    fill_ring<kScaleK>(args, block, block.scales,
                       ScaleCopy<kUp, kScaleCopiers>());
  } else {
    fill_ring<kWideTokens>(args, block, block.tokens,
                           TokenCopy<kUp, kWideTokens>());
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
