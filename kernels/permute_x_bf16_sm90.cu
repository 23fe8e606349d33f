// slot_x[position, p] = x[row, k of p] for every slot of a row whose expert is on this
// rank, in tile order, zeros past hidden.
//
// Memory-bound: a row is read once and written topk times. A block has a row, a thread
// kAhead chunks of it in registers, and 8 neighbours store the 128 bytes that a slot
// has of a block of 64 positions. While they load, one more warp looks the slots up.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/permute_row.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tile_order.h"

namespace {

constexpr uint32_t kCopying = 256;  // threads
constexpr uint32_t kThreads = kCopying + 32;
constexpr uint32_t kChunk = 8;  // elements of 16 bytes
constexpr uint32_t kAhead = 4;  // chunks of a thread
constexpr uint32_t kStep = kCopying * kChunk;
constexpr uint32_t kNowhere = UINT32_MAX;
static_assert(MOEP_MAX_TOPK <= kThreads - kCopying, "a thread a slot");
static_assert(kStep % MOEP_TILE_K == 0, "a thread's chunks lie alike");

// Where the row's slot j lies: moep_tile_slot or kNowhere. No load waits for a branch.
__device__ __forceinline__ uint32_t find_slot(const moep_permute_x_args& args,
                                              uint64_t row, uint32_t j) {
  const uint64_t slot = row * args.topk + j;
  const int32_t id = args.ids[slot];
  const auto position = static_cast<uint32_t>(args.token_to_perm[slot]);
  const uint32_t expert = max(id, 0);
  const uint32_t first = args.expert_offsets[expert];
  const bool here = args.site->experts[expert].gate.weight != nullptr;
  return moep_tile_slot(position, position - first) |
         (id >= 0 && here ? 0 : kNowhere);
}

// The chunks at positions p, p + kStep, ... of the row, to its slots.
__device__ __forceinline__ void store(const moep_permute_x_args& args,
                                      const uint32_t* slots, uint32_t p,
                                      uint4 (&chunk)[kAhead]) {
  const uint32_t padded = moep_padded_k(args.hidden);
  const uint64_t step = moep_tile_block(args.slots, kStep);
  uint16_t* block = args.slot_x + moep_tile_block(args.slots, p);
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) chunk[i] = moep::permuted(chunk[i]);
  for (uint32_t j = 0; j < args.topk; j++) {
    if (slots[j] == kNowhere) continue;
    const uint32_t at = slots[j] ^ p % MOEP_TILE_K / kChunk;
    uint16_t* to = block + uint64_t{at} * kChunk;
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
      if (p + i * kStep >= padded) break;
      *reinterpret_cast<uint4*>(to + i * step) = chunk[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads, 5)
    permute_x_kernel(const __grid_constant__ moep_permute_x_args args) {
  __shared__ uint32_t slots[MOEP_MAX_TOPK];
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  const bool copying = threadIdx.x < kCopying;
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    const uint16_t* x = args.x.data + row * args.x.stride;
    for (uint32_t first = 0; first < args.hidden; first += kAhead * kStep) {
      const uint32_t p = first + threadIdx.x * kChunk;
      const uint32_t j = threadIdx.x - kCopying;
      uint4 chunk[kAhead];
      __syncthreads();
      if (copying) {
#pragma unroll
        for (uint32_t i = 0; i < kAhead; i++) {
          chunk[i] = moep::row_chunk(x, p + i * kStep, args.hidden);
        }
      } else if (j < args.topk) {
        slots[j] = find_slot(args, row, j);
      }
      __syncthreads();
      if (copying) store(args, slots, p, chunk);
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
