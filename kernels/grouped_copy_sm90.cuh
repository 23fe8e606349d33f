// The warpgroup of a block of the grouped kernel that fills the rings. Each kind of copy
// arrives at its stage's barrier itself, once a thread.

#ifndef MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_

#include "kernels/grouped_pipe_sm90.cuh"
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

// Weights; kRow bytes of a row make a stage. A thread copies one chunk of every 16th
// row, so that its rows are of one projection, and its warp's.
template <bool kUp, uint32_t kRow>
struct WeightCopy {
  static constexpr uint32_t kChunks = kRow / 16, kThreads = 16 * kChunks;
  static constexpr uint32_t kRows = kBlockRows / 16;
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
      offset[i] =
          min(weight_row<kUp>(0, i * 16 + row()), last) * pitch + chunk() * 16;
    }
  }
  __device__ __forceinline__ void copy(const GroupedBlock& block, uint32_t k0,
                                       uint32_t stage) {
    const uint32_t to = block.weights.address(stage) +
                        (kRow == kNarrowRow ? narrow_place(row(), chunk())
                                            : row() * kRow + chunk() * 16);
    const bool here = k0 + chunk() * 32 < block.k;
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      cp_async_16_or_zero(to + i * 16 * kRow, from + offset[i], here,
                          kEvictFirst);
    }
    cp_async_mbarrier_arrive_noinc(block.weights.full(stage));
    from += kRow;
  }
};

// Scales of kScaleK, by kThreads threads: pieces as wide as the rows' alignment allows.
template <bool kUp, uint32_t kThreads>
struct ScaleCopy {
  static constexpr uint32_t kRows = kBlockRows / kThreads;
  const uint8_t* from;
  uint32_t offset[kRows];

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
                                       uint32_t stage) {
    const uint32_t to =
        block.scales.address(stage) + threadIdx.x % kThreads * kScaleRow;
    const uint32_t bytes = min(block.k - k0, kScaleK) / 16;
#pragma unroll
    for (uint32_t i = 0; i < kRows; i++) {
      const uint32_t place = to + i * kThreads * kScaleRow;
      const uint8_t* at = from + offset[i];
      if (block.k / 16 % 16 == 0) {
        cp_async_16(place, at);
      } else {
#pragma unroll 1
        for (uint32_t b = 0; b < bytes; b += 4) cp_async_4(place + b, at + b);
      }
    }
    cp_async_mbarrier_arrive_noinc(block.scales.full(stage));
    from += kScaleRow;
  }
};

// Activations, by thread 0; kTiles tiles of 64 k make a stage.
template <bool kUp, uint32_t kTiles>
struct TokenCopy {
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

// Fills a ring, for each unit of the block in order, with stages of kStep k.
template <uint32_t kStep, typename... Copies>
__device__ __forceinline__ void fill_ring(const moep_grouped_args& args,
                                          const GroupedBlock& block,
                                          const Ring& ring, Copies... copies) {
  const uint32_t padded = moep_padded_k(block.k);
  RingPlace place;
  each_unit(args, block, [&](uint32_t index) {
    const GroupedWork unit = unit_at(args, block, index);
    (copies.start(args, block, unit), ...);
    for (uint32_t k0 = 0; k0 < padded; k0 += kStep) {
      mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
      (copies.copy(block, k0, place.stage), ...);
      place.advance(ring);
    }
  });
  cp_async_commit_group();
  cp_async_wait_group<0>();
}

// Threads that arrive at a stage's barrier.
constexpr uint32_t kScaleThreads = 32;
constexpr uint32_t kWideWeightThreads = WeightCopy<true, kWideRow>::kThreads;

// One ring, by all.
template <bool kUp>
__device__ __forceinline__ void copy_together(const moep_grouped_args& args,
                                              const GroupedBlock& block) {
  fill_ring<kScaleK>(args, block, block.tokens, TokenCopy<kUp, 4>(),
                     WeightCopy<kUp, kNarrowRow>(),
                     ScaleCopy<kUp, kGroupThreads>());
}

// Three rings: one warp's first thread, one warp, two warps.
template <bool kUp>
__device__ __forceinline__ void copy_apart(const moep_grouped_args& args,
                                           const GroupedBlock& block) {
  const uint32_t warp = threadIdx.x / 32;
  if (warp >= 2) {
    fill_ring<2 * kWideRow>(args, block, block.weights,
                            WeightCopy<kUp, kWideRow>());
  } else if (warp == 1) {
    fill_ring<kScaleK>(args, block, block.scales,
                       ScaleCopy<kUp, kScaleThreads>());
  } else {
    fill_ring<MOEP_TILE_K>(args, block, block.tokens, TokenCopy<kUp, 1>());
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_COPY_SM90_CUH_
