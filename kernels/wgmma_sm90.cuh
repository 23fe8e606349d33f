// What every wgmma of bf16 shares: groups, and how a tile in shared memory is
// described. A tile is rows of 64 k, 128 bytes, swizzled by 128 bytes: the 16-byte chunk
// c of row r lies at chunk c ^ (r % 8); it begins at a multiple of 1024 bytes.
//
// A warpgroup's warp w holds rows 16 w .. 16 w + 15. With g = lane / 4 and
// t = lane % 4, a lane's d[4 i + j] is row g + 8 (j / 2), column 8 i + 2 t + j % 2.

#ifndef MOEPLAN_KERNELS_WGMMA_SM90_CUH_
#define MOEPLAN_KERNELS_WGMMA_SM90_CUH_

#include <stdint.h>

namespace moep {

// Descriptor of a tile from its address in shared memory: groups of 8 rows 1024
// bytes apart, swizzle of 128 bytes.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t shared) {
  return uint64_t{(shared & 0x3FFFF) >> 4} | uint64_t{1} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// The next 16 k of the same tile.
constexpr uint64_t kWgmmaStep = 32 >> 4;

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Accumulators are not read or written across this by ordinary instructions.
template <uint32_t kCount>
__device__ __forceinline__ void wgmma_hold(float (&d)[kCount]) {
#pragma unroll
  for (uint32_t i = 0; i < kCount; i++) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_WGMMA_SM90_CUH_
