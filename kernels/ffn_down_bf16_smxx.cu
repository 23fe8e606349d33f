// out[r, n] = down[n] . h[r]
//
// Memory-bound: 2 bytes of weights per k and column, whatever the rows. One
// warp owns 16 columns of a segment of K. A block owns kTiles of these with all
// their segments, for 8 rows of h.

#include "kernels/gemv_bf16.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kColumns = 16;  // of one tile
constexpr uint32_t kBlockColumns = moep::block_n_ffn_down_bf16_smxx;
constexpr uint32_t kTiles = kBlockColumns / kColumns;
static_assert(kBlockColumns % kColumns == 0 && kTiles >= 1, "whole tiles");
static_assert(kTiles <= 3, "totals of 32 segments fit 48 KiB");

__device__ __forceinline__ void run_chains(const moep_ffn_down_args& args,
                                           uint32_t first_column,
                                           uint32_t first_row, uint32_t end,
                                           float4* totals) {
  const uint32_t lane = threadIdx.x % moep::kLanes;
  const uint32_t chains = moep::segments_of(args.width) * kTiles;
  const uint64_t row = first_row + lane / 4;
  const uint16_t* h = row < end ? args.h + row * args.width : nullptr;
  for (uint32_t chain = threadIdx.x / moep::kLanes; chain < chains;
       chain += blockDim.x / moep::kLanes) {
    const uint32_t column = first_column + chain % kTiles * kColumns;
    if (column >= args.hidden) continue;
    const uint64_t pitch = args.site->ffn.down_pitch;
    const uint16_t* down = args.site->ffn.down + (column + lane / 4) * pitch;
    totals[chain * moep::kLanes + lane] = moep::run_chain(moep::segment_chain(
        down, down + 8 * pitch, h, args.width, chain / kTiles));
  }
}

__device__ __forceinline__ void store(const moep_ffn_down_args& args,
                                      uint64_t row, uint32_t column,
                                      float value) {
  if (args.tap.ffn_down != nullptr) {
    args.tap.ffn_down[row * args.hidden + column] = value;
  }
  const uint64_t at = row * args.out.stride + column;
  if (args.out.is_f32 != 0) {
    static_cast<float*>(args.out.data)[at] = moep_f32_stored(value);
  } else {
    static_cast<uint16_t*>(args.out.data)[at] = moep_bf16_from_float(value);
  }
}

__global__ void __launch_bounds__(moep::kMaxThreads)
    ffn_down_kernel(const __grid_constant__ moep_ffn_down_args args) {
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
         first_column < args.hidden;
         first_column += place.columns * kBlockColumns) {
      run_chains(args, first_column, static_cast<uint32_t>(first_row), end,
                 totals);
      __syncthreads();
      const uint32_t column = first_column + warp * kColumns + lane / 4;
      if (warp < kTiles && first_column + warp * kColumns < args.hidden) {
        const float4 sum = moep::sum_segments(
            totals + threadIdx.x, moep::segments_of(args.width), kTiles);
        const uint64_t row = first_row + lane % 4 * 2;
        if (row < end) {
          store(args, row, column, sum.x);
          store(args, row, column + 8, sum.z);
        }
        if (row + 1 < end) {
          store(args, row + 1, column, sum.y);
          store(args, row + 1, column + 8, sum.w);
        }
      }
      __syncthreads();
    }
  }
}

}  // namespace

cudaError_t moep_ffn_down_bf16_smxx(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  const uint32_t k = args->ffn_down.width;
  return moep::launch<const moep_ffn_down_args>(
      ffn_down_kernel, args->ffn_down, *launch, moep::chain_threads(kTiles, k),
      moep::chain_shared_bytes(kTiles, k), stream);
}

cudaError_t moep_ffn_down_bf16_smxx_load(void) {
  return moep::load(ffn_down_kernel);
}
