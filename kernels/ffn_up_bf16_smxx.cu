// h[r, i] = bf16(swiglu(bf16(gate[i] . x[r]), bf16(up[i] . x[r]), limit))
//
// For few rows: memory-bound, 4 bytes of weights per k and column. A tile is 8 rows
// of gate and 8 of up, so that a lane holds both halves of its SwiGLU.

#include "kernels/narrow_block.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kColumns = moep::block_n_ffn_up_bf16_smxx;  // of a tile
static_assert(2 * kColumns == moep::kTileRows, "gate and up");

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

template <uint32_t kTiles, uint32_t kGroups>
__global__ void __launch_bounds__(moep::kNarrowThreads, 1) ffn_up_kernel(
    const __grid_constant__ moep::NarrowArgs<moep_ffn_up_args> all) {
  const moep_ffn_up_args& args = all.args;
  const moep::NarrowWeights weights = {
      args.site->ffn.gate, args.site->ffn.up, args.hidden,
      uint64_t{kColumns} * args.hidden, args.hidden};
  moep::narrow_block<kTiles, kGroups>(
      args.rows, args.x.data, args.x.stride, weights, args.width / kColumns,
      all.batch,
      [&](uint32_t tile, uint32_t first, uint32_t count, const float4& sum) {
        const uint32_t lane = threadIdx.x % moep::kLanes;
        const uint32_t column = tile * kColumns + lane / 4;
        const uint32_t at = lane % 4 * 2;
        if (at < count) store(args, first + at, column, sum.x, sum.z);
        if (at + 1 < count) store(args, first + at + 1, column, sum.y, sum.w);
      });
}

template <uint32_t kTiles, uint32_t kGroups>
struct FfnUp {
  static constexpr auto kernel = ffn_up_kernel<kTiles, kGroups>;
};

}  // namespace

cudaError_t moep_ffn_up_bf16_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const moep_ffn_up_args& up = args->ffn_up;
  return moep::launch_narrow<FfnUp>(up, up.width / kColumns, up.hidden, *launch,
                                    stream);
}

cudaError_t moep_ffn_up_bf16_smxx_load(void) {
  return moep::load_narrow<FfnUp>();
}
