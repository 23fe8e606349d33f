// out[r, n] = down[n] . h[r]
//
// For few rows: memory-bound, 2 bytes of weights per k and column. A tile is 16
// columns.

#include "kernels/narrow_block.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kColumns = moep::block_n_ffn_down_bf16_smxx;  // of a tile
static_assert(kColumns == moep::kTileRows, "one row a column");

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

template <uint32_t kTiles, uint32_t kGroups>
__global__ void __launch_bounds__(moep::kNarrowThreads, 1) ffn_down_kernel(
    const __grid_constant__ moep::NarrowArgs<moep_ffn_down_args> all) {
  const moep_ffn_down_args& args = all.args;
  const uint64_t pitch = args.site->ffn.down_pitch;
  const uint16_t* down = args.site->ffn.down;
  const moep::NarrowWeights weights = {down, down + 8 * pitch, pitch,
                                       kColumns * pitch, args.width};
  moep::narrow_block<kTiles, kGroups>(
      args.rows, args.h, args.width, weights, args.hidden / kColumns, all.batch,
      [&](uint32_t tile, uint32_t first, uint32_t count, const float4& sum) {
        const uint32_t lane = threadIdx.x % moep::kLanes;
        const uint32_t column = tile * kColumns + lane / 4;
        const uint32_t at = lane % 4 * 2;
        if (at < count) {
          store(args, first + at, column, sum.x);
          store(args, first + at, column + 8, sum.z);
        }
        if (at + 1 < count) {
          store(args, first + at + 1, column, sum.y);
          store(args, first + at + 1, column + 8, sum.w);
        }
      });
}

template <uint32_t kTiles, uint32_t kGroups>
struct FfnDown {
  static constexpr auto kernel = ffn_down_kernel<kTiles, kGroups>;
};

}  // namespace

cudaError_t moep_ffn_down_bf16_smxx(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  const moep_ffn_down_args& down = args->ffn_down;
  return moep::launch_narrow<FfnDown>(down, down.hidden / kColumns, down.width,
                                      *launch, stream);
}

cudaError_t moep_ffn_down_bf16_smxx_load(void) {
  return moep::load_narrow<FfnDown>();
}
