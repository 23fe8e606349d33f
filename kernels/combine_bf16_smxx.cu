// y[r] = sum_j w[j] slot_out[position of (r, j)] + ffn_out[r]
//
// Memory-bound: 2 bytes per slot and column, and the row's own. A thread has 8
// columns (one 16-byte load a slot, those of 8 slots in flight), a block has a row.
// A slot that is not there adds 0 * -0, which changes no sum: no load waits for a
// branch.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kColumns = 8;  // of a thread
constexpr uint32_t kAhead = 8;    // slots in flight
constexpr uint32_t kNowhere = UINT32_MAX;
static_assert(MOEP_MAX_TOPK <= kThreads && MOEP_MAX_TOPK % kAhead == 0,
              "a thread a slot, and none past the last");

// Where the row's slots lie, and what each counts.
struct Slots {
  uint32_t position[MOEP_MAX_TOPK];  // kNowhere: unfilled, or of another rank
  float weight[MOEP_MAX_TOPK];       // 0 then
};

// Slot j = threadIdx.x.
__device__ __forceinline__ void find_slot(const moep_combine_args& args,
                                          uint64_t row, Slots& slots) {
  const uint32_t j = threadIdx.x;
  if (j >= MOEP_MAX_TOPK) return;
  slots.position[j] = kNowhere;
  slots.weight[j] = 0.0f;
  if (j >= args.topk) return;
  const uint64_t slot = row * args.topk + j;
  const auto position = static_cast<uint32_t>(args.token_to_perm[slot]);
  const auto id = static_cast<uint32_t>(args.ids[slot]);
  const float weight = args.weights[slot];
  const bool filled = id < args.experts;
  const moep_expert& expert = args.site->experts[filled ? id : 0];
  const bool here =
      filled && expert.gate.weight != nullptr && position != kNowhere;
  slots.position[j] = here ? position : kNowhere;
  slots.weight[j] = here ? weight : 0.0f;
}

// sum = fma(weight, the two bf16 of word, sum)
__device__ __forceinline__ void add_pair(float weight, uint32_t word,
                                         float& low, float& high) {
  low = moep_fma(weight, __uint_as_float(word << 16), low);
  high = moep_fma(weight, __uint_as_float(word & 0xFFFF0000u), high);
}

// kAhead slots of 8 columns, in their order. `from`: the columns in slot_out's first
// row.
__device__ __forceinline__ void add_slots(const Slots& slots, uint32_t first,
                                          const uint16_t* from, uint32_t hidden,
                                          float (&sum)[kColumns]) {
  constexpr uint32_t kMinusZeros = 0x80008000;
  uint4 part[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) {
    part[i] = make_uint4(kMinusZeros, kMinusZeros, kMinusZeros, kMinusZeros);
    const uint32_t position = slots.position[first + i];
    moep::ld_global_cs_v4_if(part[i], from + uint64_t{position} * hidden,
                             position != kNowhere);
  }
#pragma unroll
  for (uint32_t i = 0; i < kAhead; i++) {
    const float weight = slots.weight[first + i];
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

__device__ __forceinline__ uint32_t f32_bits(float value) {
  return __float_as_uint(moep_f32_stored(value));
}

__device__ __forceinline__ void store(const moep_y& y, uint64_t at,
                                      const float (&sum)[kColumns]) {
  if (y.is_f32 != 0) {
    float* to = static_cast<float*>(y.data) + at;
#pragma unroll
    for (uint32_t i = 0; i < kColumns; i += 4) {
      moep::st_global_v4(
          to + i, make_uint4(f32_bits(sum[i]), f32_bits(sum[i + 1]),
                             f32_bits(sum[i + 2]), f32_bits(sum[i + 3])));
    }
  } else {
    moep::st_global_v4(
        static_cast<uint16_t*>(y.data) + at,
        make_uint4(bf16_pair(sum[0], sum[1]), bf16_pair(sum[2], sum[3]),
                   bf16_pair(sum[4], sum[5]), bf16_pair(sum[6], sum[7])));
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    combine_kernel(const __grid_constant__ moep_combine_args args) {
  __shared__ Slots slots;
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  for (uint64_t row = args.rows.begin + blockIdx.x; row < end;
       row += gridDim.x) {
    __syncthreads();
    find_slot(args, row, slots);
    __syncthreads();
    for (uint32_t column = threadIdx.x * kColumns; column < args.hidden;
         column += kThreads * kColumns) {
      float sum[kColumns] = {};
#pragma unroll 1
      for (uint32_t j = 0; j < args.topk; j += kAhead) {
        add_slots(slots, j, args.slot_out + column, args.hidden, sum);
      }
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
