// slot_x[position, p] = x[row, k of p] for every slot of a row whose expert is on this
// rank, in tile order, zeros past hidden.
//
// Memory-bound: a row is read once and written topk times. A block has a row.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/permute_row.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tile_order.h"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kChunk = 8;  // elements of 16 bytes

// Where the row's slots lie; position -1: nowhere.
struct Slots {
  int32_t position[MOEP_MAX_TOPK];
  uint32_t row[MOEP_MAX_TOPK];  // of the expert's
};

__device__ __forceinline__ void find_slots(const moep_permute_x_args& args,
                                           uint64_t row, Slots& slots) {
  const uint32_t j = threadIdx.x;
  if (j >= args.topk) return;
  const uint64_t slot = row * args.topk + j;
  const int32_t position = args.token_to_perm[slot];
  slots.position[j] = -1;
  if (position < 0) return;
  const int32_t expert = args.ids[slot];
  if (args.site->experts[expert].gate.weight == nullptr) return;
  slots.position[j] = position;
  slots.row[j] = static_cast<uint32_t>(position) - args.expert_offsets[expert];
}

__global__ void __launch_bounds__(kThreads)
    permute_x_kernel(const __grid_constant__ moep_permute_x_args args) {
  __shared__ Slots slots;
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  const uint32_t padded = moep_padded_k(args.hidden);
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    __syncthreads();
    find_slots(args, row, slots);
    __syncthreads();
    const uint16_t* x = args.x.data + row * args.x.stride;
#pragma unroll 4
    for (uint32_t first = 0; first < padded; first += kThreads * kChunk) {
      uint32_t p;
      const uint4 chunk =
          moep::permuted_chunk(x, first + threadIdx.x * kChunk, args.hidden, p);
      if (p >= padded) continue;
      for (uint32_t j = 0; j < args.topk; j++) {
        if (slots.position[j] < 0) continue;
        *reinterpret_cast<uint4*>(
            args.slot_x +
            moep_tile_place(args.slots,
                            static_cast<uint32_t>(slots.position[j]),
                            slots.row[j], p)) = chunk;
      }
    }
  }
}

}  // namespace

cudaError_t moep_permute_x_bf16_sm90(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  return moep::launch<const moep_permute_x_args>(
      permute_x_kernel, args->permute_x, *launch, kThreads, 0, stream);
}

cudaError_t moep_permute_x_bf16_sm90_load(void) {
  return moep::load(permute_x_kernel);
}
