// h[r, i] = bf16(swiglu(bf16(gate[i] . x[r]), bf16(up[i] . x[r]), limit))
// out[r, n] = down[n] . h[r]
//
// For many rows: bound by the tensor cores. A tile of ffn_up is 64 columns of h,
// 8 rows of gate and 8 of up in each m16, so that a thread holds both halves of
// its SwiGLU; a tile of ffn_down is 128 columns of out.

#include "kernels/launch.cuh"
#include "kernels/scalar.h"
#include "kernels/swiglu.cuh"
#include "kernels/tensor_map.cuh"
#include "kernels/wide_total_sm90.cuh"

namespace {

using moep::kWideRows;

template <typename Args>
struct WideArgs {
  Args args;
  CUtensorMap rows;  // of activations, boxes of 64 k
};

// What the tiles are made of.
struct Shape {
  uint32_t k, columns;  // of output
  uint32_t tile;        // columns of a tile
};

__host__ __device__ __forceinline__ Shape
shape_of(const moep_ffn_up_args& args) {
  return {args.hidden, args.width, moep::block_n_ffn_up_bf16_sm90};
}
__host__ __device__ __forceinline__ Shape
shape_of(const moep_ffn_down_args& args) {
  return {args.width, args.hidden, moep::block_n_ffn_down_bf16_sm90};
}
static_assert(moep::block_n_ffn_up_bf16_sm90 == kWideRows / 2, "gate and up");
static_assert(moep::block_n_ffn_down_bf16_sm90 == kWideRows, "down");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ moep::WideWeights weights_of(
    const moep_ffn_up_args& args, uint32_t column) {
  const uint64_t offset = uint64_t{column + threadIdx.x / 8} * args.hidden;
  return {args.site->ffn.gate + offset, args.site->ffn.up + offset,
          uint64_t{8} * args.hidden, 0};
}

// The last tile may be half of one: then it is fetched twice.
__device__ __forceinline__ moep::WideWeights weights_of(
    const moep_ffn_down_args& args, uint32_t column) {
  const uint64_t pitch = args.site->ffn.down_pitch;
  const uint16_t* down =
      args.site->ffn.down + (column + threadIdx.x / 8) * pitch;
  const bool whole = column + kWideRows <= args.hidden;
  return {down, down + 8 * pitch, 16 * pitch,
          whole ? 0 : kWideRows / 2 * pitch};
}

// A thread's results before any rounding: rows g and g + 8 of its m16 as columns
// of the output, the rows of activations from `row` on.
template <uint32_t kSums>
__device__ __forceinline__ void store_floats(float* low, float* high,
                                             uint64_t stride, uint32_t row,
                                             uint32_t end,
                                             const float (&sum)[kSums]) {
  row += threadIdx.x % 4 * 2;
  low += row * stride;
  high += row * stride;
#pragma unroll
  for (uint32_t i = 0; i < kSums; i += 4) {
    if (row < end) {
      low[0] = moep_f32_stored(sum[i]);
      high[0] = moep_f32_stored(sum[i + 2]);
    }
    if (row + 1 < end) {
      low[stride] = moep_f32_stored(sum[i + 1]);
      high[stride] = moep_f32_stored(sum[i + 3]);
    }
    row += 8;
    low += 8 * stride;
    high += 8 * stride;
  }
}

// The m16 of this warp within its tile.
__device__ __forceinline__ uint32_t m16_of_warp() {
  return threadIdx.x / 32 - 4;
}

// What needs float32 of a finished half tile.
template <uint32_t kSums>
__device__ __forceinline__ void store_sums(const moep_ffn_up_args& args,
                                           uint32_t column, uint32_t row,
                                           uint32_t end,
                                           const float (&sum)[kSums]) {
  if (args.tap.ffn_up == nullptr) return;
  const uint32_t at = column + m16_of_warp() * 8 + threadIdx.x % 32 / 4;
  if (at >= args.width) return;
  float* tap = args.tap.ffn_up + at;
  store_floats(tap, tap + args.width, uint64_t{2} * args.width, row, end, sum);
}

template <uint32_t kSums>
__device__ __forceinline__ void store_sums(const moep_ffn_down_args& args,
                                           uint32_t column, uint32_t row,
                                           uint32_t end,
                                           const float (&sum)[kSums]) {
  const uint32_t at = column + m16_of_warp() * 16 + threadIdx.x % 32 / 4;
  if (at >= args.hidden) return;
  if (args.tap.ffn_down != nullptr) {
    float* tap = args.tap.ffn_down + at;
    store_floats(tap, tap + 8, args.hidden, row, end, sum);
  }
  if (args.out.is_f32 == 0) return;
  float* out = static_cast<float*>(args.out.data) + at;
  store_floats(out, out + 8, args.out.stride, row, end, sum);
}

// 8 words of one row, columns of output from `column` on.
__device__ __forceinline__ void store_words(const moep_ffn_up_args& args,
                                            uint64_t row, uint32_t column,
                                            const uint32_t (&word)[8]) {
  if (column >= args.width) return;
  float gate[8], up[8];
  uint32_t h[4];
#pragma unroll
  for (uint32_t i = 0; i < 8; i++) {
    gate[i] = __uint_as_float(word[i] << 16);
    up[i] = __uint_as_float(word[i] & 0xFFFF0000u);
  }
  moep::swiglu_bf16(gate, up, args.limit, h);
  *reinterpret_cast<uint4*>(args.h + row * args.width + column) =
      make_uint4(h[0], h[1], h[2], h[3]);
}

__device__ __forceinline__ void store_words(const moep_ffn_down_args& args,
                                            uint64_t row, uint32_t column,
                                            const uint32_t (&word)[8]) {
  if (column >= args.hidden || args.out.is_f32 != 0) return;
  auto* out = reinterpret_cast<uint4*>(static_cast<uint16_t*>(args.out.data) +
                                       row * args.out.stride + column);
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t halves = i == 0 ? 0x5410 : 0x7632;
    out[i] = make_uint4(__byte_perm(word[0], word[1], halves),
                        __byte_perm(word[2], word[3], halves),
                        __byte_perm(word[4], word[5], halves),
                        __byte_perm(word[6], word[7], halves));
  }
}

// A warp: the words of half a tile, `columns` of output for each 8 of them.
template <uint32_t N, typename Args>
__device__ __forceinline__ void store_half(const Args& args, uint32_t words,
                                           uint32_t columns, uint32_t column,
                                           uint32_t row, uint32_t end) {
  const uint32_t lane = threadIdx.x % 32, part = lane % 4;
#pragma unroll 1
  for (uint32_t r = lane / 4; r < N && row + r < end; r += 8) {
    const uint32_t at = words + moep::wide_word(r, part * 8);
    const uint4 low = moep::ld_shared_v4(at),
                high = moep::ld_shared_v4(at + 16);
    const uint32_t word[8] = {low.x,  low.y,  low.z,  low.w,
                              high.x, high.y, high.z, high.w};
    store_words(args, row + r, column + part * columns, word);
  }
}

// One role of a block over all of its tiles.
template <uint32_t N, typename Args>
struct Block {
  const WideArgs<Args>& all;
  Shape shape;
  moep::WideTiles tiles;
  uint32_t base, end;  // shared memory; of the rows

  __device__ __forceinline__ uint32_t first_row(uint2 tile) const {
    return all.args.rows.begin + tile.y * N;
  }
  __device__ __forceinline__ uint32_t words(uint32_t half) const {
    return base + moep::Wide<N>::kResults + half * moep::Wide<N>::kResultBytes;
  }
  __device__ __forceinline__ uint32_t first() const {
    return blockIdx.x / moep::cluster_nctarank();
  }
  __device__ __forceinline__ uint32_t stride() const {
    return gridDim.x / moep::cluster_nctarank();
  }

  __device__ __forceinline__ void load() const {
    moep::WideRing<N> ring = {base, 0, 0};
    for (uint32_t i = first(); i < tiles.count(); i += stride()) {
      const uint2 tile = tiles.at(i);
      // A tile past the last one is the last one again, and not stored.
      const uint32_t column = min(tile.x, tiles.weights - 1) * shape.tile;
      moep::wide_load_tile<N>(ring, weights_of(all.args, column), &all.rows,
                              first_row(tile), tiles.rank, shape.k);
    }
  }

  __device__ __forceinline__ void multiply() const {
    const uint32_t half = threadIdx.x / 128 - 1;
    moep::WideRing<N> ring = {base, 0, 0};
    float sum[moep::Wide<N>::kSums];
    for (uint32_t i = first(); i < tiles.count(); i += stride()) {
      const uint2 tile = tiles.at(i);
      moep::wide_sum_tile<N>(ring, words(half), sum, shape.k, i != first());
      moep::wide_hand_over<N>(words(half), sum);
      store_sums(all.args, tile.x * shape.tile, first_row(tile), end, sum);
    }
  }

  __device__ __forceinline__ void store() const {
    const uint32_t half = threadIdx.x / 32 - 2;
    for (uint32_t i = first(); i < tiles.count(); i += stride()) {
      const uint2 tile = tiles.at(i);
      if (i != first()) {
        moep::barrier_arrive(moep::kWideRead + half, moep::kWideExchange);
      }
      moep::barrier_sync(moep::kWideWritten + half, moep::kWideExchange);
      store_half<N>(all.args, words(half), shape.tile / 8,
                    tile.x * shape.tile + half * shape.tile / 2,
                    first_row(tile), end);
    }
  }
};

template <uint32_t N>
__device__ __forceinline__ void open_barriers(uint32_t base) {
  moep::WideRing<N> ring = {base, 0, 0};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < moep::Wide<N>::kStages; i++) {
      moep::mbarrier_init(ring.full(), moep::kWideLoaders + 1);
      // The 8 warps that multiply, of each block.
      moep::mbarrier_init(ring.empty(), 8 * moep::cluster_nctarank());
      ring.advance();
    }
    moep::fence_mbarrier_init();
  }
  moep::barrier_cluster();
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <uint32_t N, typename Args>
__global__ void __launch_bounds__(moep::kWideThreads, 1)
    ffn_kernel(const __grid_constant__ WideArgs<Args> all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t shared[];
  const uint32_t base = (moep::shared_address(shared) + 1023) & ~1023u;
  open_barriers<N>(base);
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();

  const Shape shape = shape_of(all.args);
  const uint32_t end = moep_rows_end(&all.args.rows);
  const uint32_t begin = all.args.rows.begin;
  const uint32_t weights = moep_ceil_div(shape.columns, shape.tile);
  const Block<N, Args> block = {
      all,
      shape,
      {weights, end > begin ? moep_ceil_div(end - begin, N) : 0,
       moep_ceil_div(weights, moep::cluster_nctarank()),
       moep::cluster_ctarank()},
      base,
      end};
  if (threadIdx.x < 128) {
    moep::setmaxnreg_dec<moep::kWideOthers>();
    if (threadIdx.x < moep::kWideLoaders) {
      block.load();
    } else {
      block.store();
    }
  } else {
    moep::setmaxnreg_inc<moep::kWideRegisters>();
    block.multiply();
  }
  // No block of a cluster ends while the other may write to its shared memory.
  moep::barrier_cluster();
#endif
}

struct Rows {
  const uint16_t* data;
  uint64_t stride;
};

// Blocks of a cluster.
uint32_t cluster_of(const moep_launch& launch) {
  return launch.grid[0] < moep::kWideCluster ? 1 : moep::kWideCluster;
}

uint32_t clusters_of(const moep_launch& launch) {
  return launch.grid[0] / cluster_of(launch);
}

template <uint32_t N, typename Args>
cudaError_t launch_wide(const Args& args, const Rows& rows,
                        const moep_launch& launch, cudaStream_t stream) {
  WideArgs<Args> all = {args, {}};
  const moep::MappedMatrix matrix = {rows.data,
                                     CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                     sizeof(uint16_t),
                                     args.rows.begin + args.rows.count,
                                     shape_of(args).k * sizeof(uint16_t),
                                     rows.stride * sizeof(uint16_t),
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
  const cudaError_t error =
      moep::tensor_map_encode(&all.rows, matrix, N / moep::kWideCluster);
  if (error != cudaSuccess) return error;
  moep_launch clusters = launch;
  const uint32_t cluster = cluster_of(launch);
  clusters.grid[0] = clusters_of(launch) * cluster;
  return moep::launch<const WideArgs<Args>>(
      ffn_kernel<N, Args>, all, clusters, moep::kWideThreads,
      moep::Wide<N>::kSharedBytes, stream, moep::Blocks{false, cluster});
}

// Time of a launch with tiles of N rows, in units of one tile of 256: narrow tiles
// are bound by what they fetch.
template <typename Args>
uint32_t cost_of(const Args& args, const moep_launch& launch, uint32_t n,
                 uint32_t tile_cost) {
  const Shape shape = shape_of(args);
  const uint32_t clusters = clusters_of(launch);
  const uint32_t sets =
      moep_ceil_div(shape.columns, shape.tile * cluster_of(launch));
  const uint64_t tiles = uint64_t{sets} * moep_ceil_div(args.rows.count, n);
  return static_cast<uint32_t>((tiles + clusters - 1) / clusters) * tile_cost;
}

// The tile that takes the fewest rounds for its width.
template <typename Args>
cudaError_t launch_rows(const Args& args, const Rows& rows,
                        const moep_launch& launch, cudaStream_t stream) {
  const uint32_t cost[3] = {cost_of(args, launch, 64, 100),
                            cost_of(args, launch, 128, 150),
                            cost_of(args, launch, 256, 256)};
  if (cost[0] < cost[1] && cost[0] < cost[2]) {
    return launch_wide<64>(args, rows, launch, stream);
  }
  if (cost[1] < cost[2]) return launch_wide<128>(args, rows, launch, stream);
  return launch_wide<256>(args, rows, launch, stream);
}

template <typename Args>
cudaError_t load_all() {
  moep::TensorMapEncode encode = nullptr;
  cudaError_t error = moep::tensor_map_load(&encode);
  if (error == cudaSuccess) error = moep::load(ffn_kernel<64, Args>);
  if (error == cudaSuccess) error = moep::load(ffn_kernel<128, Args>);
  if (error == cudaSuccess) error = moep::load(ffn_kernel<256, Args>);
  return error;
}

}  // namespace

cudaError_t moep_ffn_up_bf16_sm90(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const moep_ffn_up_args& up = args->ffn_up;
  return launch_rows(up, {up.x.data, up.x.stride}, *launch, stream);
}

cudaError_t moep_ffn_up_bf16_sm90_load(void) {
  return load_all<moep_ffn_up_args>();
}

cudaError_t moep_ffn_down_bf16_sm90(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  const moep_ffn_down_args& down = args->ffn_down;
  return launch_rows(down, {down.h, down.width}, *launch, stream);
}

cudaError_t moep_ffn_down_bf16_sm90_load(void) {
  return load_all<moep_ffn_down_args>();
}
