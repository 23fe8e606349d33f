// xp[r, p] = x[r, k of p], zeros past hidden
//
// Memory-bound: 4 bytes move per element. Within a block of 128, k has bits
// (t1 t0 j1 j0 b h c) and its position (j1 j0 h c t1 t0 b): a lane (t, j) loads
// the 8 elements (b h c), four lanes of one j transpose among themselves, and the
// lane stores the 8 positions (t b) of one (h, c). A block has a row.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kChunk = 8;  // elements of 16 bytes

// Lane t of four holds word[i] for i = 0..3; it gets the word t of lane i as
// word[i]. Lanes t and t ^ 1, t ^ 2 are 4 and 8 lanes apart.
__device__ __forceinline__ void transpose(uint32_t (&word)[4]) {
  const bool odd = (threadIdx.x & 4) != 0, high = (threadIdx.x & 8) != 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? word[i] : word[i + 1], 4);
    if (odd) {
      word[i] = other;
    } else {
      word[i + 1] = other;
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t other =
        __shfl_xor_sync(~0u, high ? word[i] : word[i + 2], 8);
    if (high) {
      word[i] = other;
    } else {
      word[i + 2] = other;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    permute_x_kernel(const __grid_constant__ moep_permute_x_args args) {
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  const uint32_t padded = moep_padded_k(args.hidden);
  const uint32_t lane = threadIdx.x % 16, t = lane / 4, j = lane % 4;
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    const uint16_t* x = args.x.data + row * args.x.stride;
    uint16_t* xp = args.xp + row * padded;
#pragma unroll 4
    for (uint32_t first = 0; first < padded; first += kThreads * kChunk) {
      const uint32_t k = first + threadIdx.x * kChunk;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (k < args.hidden) v = *reinterpret_cast<const uint4*>(x + k);
      // Pairs (h, c) over b: b = 0 in x and y, b = 1 in z and w.
      uint32_t word[4] = {
          __byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
          __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
      transpose(word);
      const uint32_t p = k - lane * kChunk + (j * 4 + t) * kChunk;
      if (p >= padded) continue;
      *reinterpret_cast<uint4*>(xp + p) =
          make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

}  // namespace

cudaError_t moep_permute_x_bf16_smxx(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  return moep::launch<const moep_permute_x_args>(
      permute_x_kernel, args->permute_x, *launch, kThreads, 0, stream);
}

cudaError_t moep_permute_x_bf16_smxx_load(void) {
  return moep::load(permute_x_kernel);
}
