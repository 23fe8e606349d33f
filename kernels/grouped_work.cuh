// Which piece of a grouped projection a block does: the experts' tokens, cut into
// tiles, times tiles of the weights' rows. Read from the device's offsets, so that
// the grid does not depend on the routing.

#ifndef MOEPLAN_KERNELS_GROUPED_WORK_CUH_
#define MOEPLAN_KERNELS_GROUPED_WORK_CUH_

#include "kernels/args.h"

namespace moep {

struct GroupedWork {
  uint32_t expert;
  uint32_t position, tokens;  // in sorted order
  uint32_t tile;              // of the weights
};

// before[e]: token tiles of the experts before e; those of experts that are not
// here or not asked for count as none. [experts + 1]; all threads call.
__device__ __forceinline__ void grouped_tiles(const moep_grouped_args& args,
                                              uint32_t experts, uint32_t tokens,
                                              uint32_t* before) {
  for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const uint32_t count = args.expert_offsets[e + 1] - args.expert_offsets[e];
    const bool wanted = e - args.expert_begin < args.expert_count &&
                        args.site->experts[e].gate.weight != nullptr;
    before[e + 1] = wanted ? moep_ceil_div(count, tokens) : 0;
  }
  if (threadIdx.x == 0) before[0] = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t sum = 0;
    for (uint32_t first = 1; first <= experts; first += 32) {
      const uint32_t e = first + threadIdx.x;
      uint32_t own = e <= experts ? before[e] : 0;
      for (uint32_t apart = 1; apart < 32; apart *= 2) {
        const uint32_t below = __shfl_up_sync(~0u, own, apart);
        if (threadIdx.x >= apart) own += below;
      }
      if (e <= experts) before[e] = sum + own;
      sum += __shfl_sync(~0u, own, 31);
    }
  }
  __syncthreads();
}

// Work `index` of all: an expert's token tiles of one weight tile side by side. They
// are alike but for the last, in eights, and at most what grouped_tiles was given (a
// multiple of 8).
__device__ __forceinline__ GroupedWork
grouped_work(const moep_grouped_args& args, uint32_t experts,
             uint32_t weight_tiles, const uint32_t* before, uint32_t index) {
  // The last expert whose first work is not past `index`.
  uint32_t low = 0, high = experts;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (before[middle] * weight_tiles <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const uint32_t tiles = before[low + 1] - before[low];
  const uint32_t own = index - before[low] * weight_tiles;
  const uint32_t begin = args.expert_offsets[low];
  const uint32_t end = args.expert_offsets[low + 1];
  const uint32_t wide = moep_round_up(moep_ceil_div(end - begin, tiles), 8);
  const uint32_t position = begin + own % tiles * wide;
  return {low, position, min(wide, end - position), own / tiles};
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_WORK_CUH_
