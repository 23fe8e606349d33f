// y[r] = sum_j w[j] slot_out[position of (r, j)] + ffn_out[r]
//
// Memory-bound: 2 bytes per slot and column, and the row's own. A thread has 8
// columns (one 16-byte load a slot), a block has a row. Lane j of every warp knows
// slot j.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kColumns = 8;  // of a thread
constexpr uint32_t kAhead = 8;    // slots in flight
static_assert(MOEP_MAX_TOPK <= 32 && MOEP_MAX_TOPK % kAhead == 0,
              "a lane each");

// A lane's slot of the row.
struct Slots {
  int32_t position;  // -1: unfilled, or its expert is on another rank
  float weight;
};

__device__ __forceinline__ Slots slots_of(const moep_combine_args& args,
                                          uint64_t row) {
  const uint32_t j = threadIdx.x % 32;
  const uint64_t slot = row * args.topk + j;
  Slots slots = {-1, 0.0f};
  int32_t id = -1;
  if (j < args.topk) {
    id = args.ids[slot];
    slots.position = args.token_to_perm[slot];
    slots.weight = args.weights[slot];
  }
  const bool here = id >= 0 && static_cast<uint32_t>(id) < args.experts &&
                    args.site->experts[id].gate.weight != nullptr;
  if (!here) slots.position = -1;
  return slots;
}

// sum = fma(weight, the two bf16 of word, sum)
__device__ __forceinline__ void add_pair(float weight, uint32_t word,
                                         float& low, float& high) {
  low = moep_fma(weight, __uint_as_float(word << 16), low);
  high = moep_fma(weight, __uint_as_float(word & 0xFFFF0000u), high);
}

// Slots first .. first + kAhead - 1 of 8 columns, in their order.
__device__ __forceinline__ void add_slots(const moep_combine_args& args,
                                          const Slots& slots, uint32_t first,
                                          uint32_t column,
                                          float (&sum)[kColumns]) {
  uint4 part[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) {
    const int32_t position = __shfl_sync(~0u, slots.position, first + i);
    if (position < 0 || column >= args.hidden) continue;
    part[i] = *reinterpret_cast<const uint4*>(
        args.slot_out + static_cast<uint64_t>(position) * args.hidden + column);
  }
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) {
    const float weight = __shfl_sync(~0u, slots.weight, first + i);
    if (__shfl_sync(~0u, slots.position, first + i) < 0) continue;
    add_pair(weight, part[i].x, sum[0], sum[1]);
    add_pair(weight, part[i].y, sum[2], sum[3]);
    add_pair(weight, part[i].z, sum[4], sum[5]);
    add_pair(weight, part[i].w, sum[6], sum[7]);
  }
}

__device__ __forceinline__ void add_shared(const float* ffn_out,
                                           float (&sum)[kColumns]) {
#pragma unroll
  for (uint32_t i = 0; i < kColumns; i += 4) {
    const float4 part = *reinterpret_cast<const float4*>(ffn_out + i);
    sum[i] = __fadd_rn(sum[i], part.x);
    sum[i + 1] = __fadd_rn(sum[i + 1], part.y);
    sum[i + 2] = __fadd_rn(sum[i + 2], part.z);
    sum[i + 3] = __fadd_rn(sum[i + 3], part.w);
  }
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  return moep_bf16_from_float(low) | uint32_t{moep_bf16_from_float(high)} << 16;
}

__device__ __forceinline__ void store(const moep_y& y, uint64_t at,
                                      const float (&sum)[kColumns]) {
  if (y.is_f32 != 0) {
    float4* to = reinterpret_cast<float4*>(static_cast<float*>(y.data) + at);
#pragma unroll
    for (uint32_t i = 0; i < kColumns; i += 4) {
      to[i / 4] =
          make_float4(moep_f32_stored(sum[i]), moep_f32_stored(sum[i + 1]),
                      moep_f32_stored(sum[i + 2]), moep_f32_stored(sum[i + 3]));
    }
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(y.data) + at) =
        make_uint4(bf16_pair(sum[0], sum[1]), bf16_pair(sum[2], sum[3]),
                   bf16_pair(sum[4], sum[5]), bf16_pair(sum[6], sum[7]));
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    combine_kernel(const __grid_constant__ moep_combine_args args) {
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    const Slots slots = slots_of(args, row);
    for (uint32_t first = threadIdx.x / 32 * 32 * kColumns; first < args.hidden;
         first += kThreads * kColumns) {
      const uint32_t column = first + threadIdx.x % 32 * kColumns;
      float sum[kColumns] = {};
#pragma unroll 1
      for (uint32_t j = 0; j < args.topk; j += kAhead) {
        add_slots(args, slots, j, column, sum);
      }
      if (column >= args.hidden) continue;
      if (args.ffn_out != nullptr) {
        add_shared(args.ffn_out + row * args.hidden + column, sum);
      }
      store(args.y, row * args.y.stride + column, sum);
    }
  }
}

}  // namespace

cudaError_t moep_combine_bf16_smxx(const union moep_args* args,
                                   const struct moep_launch* launch,
                                   cudaStream_t stream) {
  return moep::launch<const moep_combine_args>(combine_kernel, args->combine,
                                               *launch, kThreads, 0, stream);
}

cudaError_t moep_combine_bf16_smxx_load(void) {
  return moep::load(combine_kernel);
}
