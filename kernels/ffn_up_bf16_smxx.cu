// h[r, i] = bf16(swiglu(bf16(gate[i] . x[r]), bf16(up[i] . x[r]), limit))
//
// Memory-bound: 4 bytes of weights per k and column, whatever the rows. One
// warp owns 8 columns of a segment of K: 8 gate rows and 8 up rows are one m16,
// so that a lane holds both halves of its SwiGLU. A block owns kTiles of these
// with all their segments, for 8 rows of x.

#include "kernels/gemv_bf16.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kColumns = 8;  // of one tile
constexpr uint32_t kBlockColumns = moep::block_n_ffn_up_bf16_smxx;
constexpr uint32_t kTiles = kBlockColumns / kColumns;
static_assert(kBlockColumns % kColumns == 0 && kTiles >= 1, "whole tiles");
static_assert(kTiles <= 3, "totals of 32 segments fit 48 KiB");

__device__ __forceinline__ void run_chains(const moep_ffn_up_args& args,
                                           uint32_t first_column,
                                           uint32_t first_row, uint32_t end,
                                           float4* totals) {
  const uint32_t lane = threadIdx.x % moep::kLanes;
  const uint32_t chains = moep::segments_of(args.hidden) * kTiles;
  const uint64_t row = first_row + lane / 4;
  const uint16_t* x = row < end ? args.x.data + row * args.x.stride : nullptr;
  for (uint32_t chain = threadIdx.x / moep::kLanes; chain < chains;
       chain += blockDim.x / moep::kLanes) {
    const uint32_t column = first_column + chain % kTiles * kColumns;
    if (column >= args.width) continue;
    const uint64_t offset = uint64_t{column + lane / 4} * args.hidden;
    totals[chain * moep::kLanes + lane] = moep::run_chain(moep::segment_chain(
        args.site->ffn.gate + offset, args.site->ffn.up + offset, x,
        args.hidden, chain / kTiles));
  }
}

__device__ __forceinline__ void store(const moep_ffn_up_args& args,
                                      uint64_t row, uint32_t column, float gate,
                                      float up) {
  if (args.tap.ffn_up != nullptr) {
    float* tap = args.tap.ffn_up + row * 2 * args.width + column;
    tap[0] = gate;
    tap[args.width] = up;
  }
  args.h[row * args.width + column] = moep_bf16_from_float(
      moep_swiglu(moep_bf16_round(gate), moep_bf16_round(up), args.limit));
}

__global__ void __launch_bounds__(moep::kMaxThreads)
    ffn_up_kernel(const __grid_constant__ moep_ffn_up_args args) {
  extern __shared__ float4 totals[];  // [segments, kTiles, 32]
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t end = moep_rows_end(&args.rows);
  const uint32_t warp = threadIdx.x / moep::kLanes;
  const uint32_t lane = threadIdx.x % moep::kLanes;
  const moep::GridPlace place = moep::place_of_block();

  for (uint64_t first_row =
           args.rows.begin + uint64_t{place.group} * moep::kGroupRows;
       first_row < end; first_row += place.groups * moep::kGroupRows) {
    for (uint32_t first_column = place.column * kBlockColumns;
         first_column < args.width;
         first_column += place.columns * kBlockColumns) {
      run_chains(args, first_column, static_cast<uint32_t>(first_row), end,
                 totals);
      __syncthreads();
      const uint32_t column = first_column + warp * kColumns + lane / 4;
      if (warp < kTiles && column < args.width) {
        const float4 sum = moep::sum_segments(
            totals + threadIdx.x, moep::segments_of(args.hidden), kTiles);
        const uint64_t row = first_row + lane % 4 * 2;
        if (row < end) store(args, row, column, sum.x, sum.z);
        if (row + 1 < end) store(args, row + 1, column, sum.y, sum.w);
      }
      __syncthreads();
    }
  }
}

}  // namespace

cudaError_t moep_ffn_up_bf16_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const uint32_t k = args->ffn_up.hidden;
  return moep::launch<const moep_ffn_up_args>(
      ffn_up_kernel, args->ffn_up, *launch, moep::chain_threads(kTiles, k),
      moep::chain_shared_bytes(kTiles, k), stream);
}

cudaError_t moep_ffn_up_bf16_smxx_load(void) {
  return moep::load(ffn_up_kernel);
}
