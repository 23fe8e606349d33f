// xp[r, p] = x[r, k of p], zeros past hidden
//
// Memory-bound: 4 bytes move per element. A block has a row.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/permute_row.cuh"
#include "kernels/ptx_sm80.cuh"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kChunk = 8;  // elements of 16 bytes

__global__ void __launch_bounds__(kThreads)
    permute_x_kernel(const __grid_constant__ moep_permute_x_args args) {
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  const uint32_t padded = moep_padded_k(args.hidden);
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    const uint16_t* x = args.x.data + row * args.x.stride;
    uint16_t* xp = args.xp + row * padded;
#pragma unroll 4
    for (uint32_t first = 0; first < padded; first += kThreads * kChunk) {
      const uint32_t p = first + threadIdx.x * kChunk;
      const uint4 chunk = moep::permuted(moep::row_chunk(x, p, args.hidden));
      if (p < padded) *reinterpret_cast<uint4*>(xp + p) = chunk;
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
