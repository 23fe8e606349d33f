// A row of x into p order, 16 bytes a lane. Within a block of 128, k has bits
// (t1 t0 j1 j0 b h c) and its position (j1 j0 h c t1 t0 b): a lane (j, t) of 16 loads
// the 8 elements (b h c) of (t, j), four lanes of one j transpose among themselves, and
// the lane has the 8 positions (t b) of one (h, c): the lanes' own, in their order.

#ifndef MOEPLAN_KERNELS_PERMUTE_ROW_CUH_
#define MOEPLAN_KERNELS_PERMUTE_ROW_CUH_

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace moep {

// Lane t of four holds word[i] for i = 0..3; it gets the word t of lane i as
// word[i].
__device__ __forceinline__ void transpose(uint32_t (&word)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? word[i] : word[i + 1], 1);
    if (odd) {
      word[i] = other;
    } else {
      word[i + 1] = other;
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t other =
        __shfl_xor_sync(~0u, high ? word[i] : word[i + 2], 2);
    if (high) {
      word[i] = other;
    } else {
      word[i + 2] = other;
    }
  }
}

// What the lane of positions p .. p + 7 (lane i of 16: p = 128 b + 8 i) loads for
// `permuted`; zeros past hidden.
__device__ __forceinline__ uint4 row_chunk(const uint16_t* x, uint32_t p,
                                           uint32_t hidden) {
  const uint32_t lane = threadIdx.x % 16;
  const uint32_t k = p - lane * 8 + (lane % 4 * 4 + lane / 4) * 8;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (k < hidden) v = *reinterpret_cast<const uint4*>(x + k);
  return v;
}

// The lane's 8 positions. All lanes of the warp call.
__device__ __forceinline__ uint4 permuted(const uint4& v) {
  // Pairs (h, c) over b: b = 0 in x and y, b = 1 in z and w.
  uint32_t word[4] = {
      __byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
      __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
  transpose(word);
  return make_uint4(word[0], word[1], word[2], word[3]);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_PERMUTE_ROW_CUH_
