// grouped_up:   h[i] = swiglu(expert.gate x, expert.up x) of the slot at position i
// grouped_down: slot_out[i] = bf16(expert.down h[i])
//
// Bound by the tensor cores for many tokens an expert, by memory for few. A block
// computes one tile (grouped_tile.cuh) over all of K after another: the grid is
// persistent. args.tile is not used: a tile with fewer tokens costs less anyway.

#include "kernels/grouped_tile.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

using namespace moep::grouped;

static_assert(Up::kBlockColumns == MOEP_BLOCK_K, "one block of h in p order");
static_assert(Up::kBlockColumns == moep::block_n_grouped_up_nvfp4_smxx,
              "kernels.inc");
static_assert(Down::kBlockColumns == moep::block_n_grouped_down_nvfp4_smxx,
              "kernels.inc");

// One element: what is stored, and the tap.
__device__ __forceinline__ uint16_t finish_up(const moep_grouped_args& args,
                                              const moep_expert& expert,
                                              uint64_t slot, uint32_t column,
                                              float gate, float up) {
  if (args.tap.expert_up != nullptr) {
    float* tap = args.tap.expert_up + slot * 2 * args.inter + column;
    tap[0] = gate;
    tap[args.inter] = up;
  }
  return moep_bf16_from_float(
      moep_swiglu(moep_bf16_round(gate * expert.gate.epilogue),
                  moep_bf16_round(up * expert.up.epilogue), args.limit));
}
__device__ __forceinline__ uint16_t finish_down(const moep_grouped_args& args,
                                                const moep_expert& expert,
                                                uint64_t slot, uint32_t column,
                                                float value) {
  if (args.tap.expert_down != nullptr) {
    args.tap.expert_down[slot * args.hidden + column] = value;
  }
  return moep_bf16_from_float(value * expert.down.epilogue);
}

// The tile [tokens, kBlockColumns] in shared memory, its rows 16 bytes longer: h
// in p order with zeros past inter, or slot_out.
template <typename P>
constexpr uint32_t kOutPitch = P::kBlockColumns + 8;
static_assert(kTokens * kOutPitch<Down> * 2 <= kSharedBytes, "fits");

template <typename P, uint32_t kPairs>
__device__ __forceinline__ void stage_out(const moep_grouped_args& args,
                                          const moep::GroupedWork& work,
                                          const int32_t* slots,
                                          const Sums<kPairs>& total,
                                          uint16_t* out) {
  const moep_expert& expert = args.site->experts[work.expert];
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t columns = sizes_of<P>(args).columns;
#pragma unroll
  for (uint32_t m = 0; m < kM; m++) {
    const uint32_t own = (threadIdx.x / 32 * kM + m) * P::kColumns + g;
    const uint32_t column = work.tile * P::kBlockColumns + own;
#pragma unroll
    for (uint32_t n = 0; n < kPairs * 2; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t token = n * 8 + lane % 4 * 2 + i;
        if (token >= work.tokens) continue;
        const uint64_t slot = static_cast<uint32_t>(slots[token]);
        const float low = total.of[m][n][i], high = total.of[m][n][i + 2];
        uint16_t* row = out + token * kOutPitch<P>;
        if (P::kIsUp) {
          row[moep_p_from_k(own)] =
              column < columns
                  ? finish_up(args, expert, slot, column, low, high)
                  : uint16_t{0};
        } else if (column < columns) {
          row[own] = finish_down(args, expert, slot, column, low);
          row[own + 8] = finish_down(args, expert, slot, column + 8, high);
        }
      }
    }
  }
}

template <typename P>
__device__ __forceinline__ void store_out(const moep_grouped_args& args,
                                          const moep::GroupedWork& work,
                                          const uint16_t* out) {
  constexpr uint32_t kChunks = P::kBlockColumns / 8;
  const uint32_t width = P::kIsUp ? moep_padded_k(args.inter) : args.hidden;
  uint16_t* to = P::kIsUp ? args.h : args.slot_out;
  for (uint32_t i = threadIdx.x; i < work.tokens * kChunks; i += kThreads) {
    const uint32_t token = i / kChunks, own = i % kChunks * 8;
    const uint32_t column = work.tile * P::kBlockColumns + own;
    if (column >= width) continue;
    *reinterpret_cast<uint4*>(to + uint64_t{work.position + token} * width +
                              column) =
        *reinterpret_cast<const uint4*>(out + token * kOutPitch<P> + own);
  }
}

// The work's tokens are at most kPairs times 16. Sums without a first value would
// keep their registers through the loop over works.
template <typename P, uint32_t kPairs>
__device__ __forceinline__ void run_tile(const moep_grouped_args& args,
                                         const moep::GroupedWork& work,
                                         const Shared& shared,
                                         uint8_t* memory) {
  Sums<kPairs> total = {};
  run_work<P, kPairs>(args, work, shared, moep::shared_address(memory), total);
  __syncthreads();  // the stages are read
  stage_out<P, kPairs>(args, work, shared.slots, total,
                       reinterpret_cast<uint16_t*>(memory));
}

template <typename P>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_kernel(const __grid_constant__ moep_grouped_args args) {
  extern __shared__ __align__(kRow) uint8_t memory[];
  __shared__ Shared shared;
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t experts = args.site->expert_count;
  const uint32_t weight_tiles =
      moep_ceil_div(sizes_of<P>(args).columns, P::kBlockColumns);
  moep::grouped_tiles(args, experts, kTokens, shared.before);
  const uint32_t works = shared.before[experts] * weight_tiles;
#pragma unroll 1
  for (uint32_t index = blockIdx.x; index < works; index += gridDim.x) {
    const moep::GroupedWork work =
        moep::grouped_work(args, experts, weight_tiles, shared.before, index);
    if (threadIdx.x < work.tokens) {
      shared.slots[threadIdx.x] =
          args.sorted_slots[work.position + threadIdx.x];
    }
    if (threadIdx.x == 0) {
      shared.matrices = matrices_of<P>(args.site->experts[work.expert]);
    }
    __syncthreads();
    switch (moep_ceil_div(work.tokens, 16)) {
      case 1:
        run_tile<P, 1>(args, work, shared, memory);
        break;
      case 2:
        run_tile<P, 2>(args, work, shared, memory);
        break;
      case 3:
        run_tile<P, 3>(args, work, shared, memory);
        break;
      default:
        run_tile<P, kTokens / 16>(args, work, shared, memory);
    }
    __syncthreads();
    store_out<P>(args, work, reinterpret_cast<const uint16_t*>(memory));
    __syncthreads();
  }
}

template <typename P>
cudaError_t launch_grouped(const moep_grouped_args& args,
                           const moep_launch& launch, cudaStream_t stream) {
  return moep::launch<const moep_grouped_args>(grouped_kernel<P>, args, launch,
                                               kThreads, kSharedBytes, stream);
}

}  // namespace

cudaError_t moep_grouped_up_nvfp4_smxx(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  return launch_grouped<Up>(args->grouped_up, *launch, stream);
}

cudaError_t moep_grouped_down_nvfp4_smxx(const union moep_args* args,
                                         const struct moep_launch* launch,
                                         cudaStream_t stream) {
  return launch_grouped<Down>(args->grouped_down, *launch, stream);
}

cudaError_t moep_grouped_up_nvfp4_smxx_load(void) {
  return moep::load(grouped_kernel<Up>);
}

cudaError_t moep_grouped_down_nvfp4_smxx_load(void) {
  return moep::load(grouped_kernel<Down>);
}
