// grouped_up and grouped_down on sm_90a: every expert's tokens times its NVFP4
// weights in one persistent launch.
//
// A block works on units of 256 weight rows and up to 128 tokens, or of 128 and up to
// 256. Its warpgroups unpack weights into registers, the A operand of wgmma, while the
// tensor cores work on the operands before; another warpgroup copies. Tiles of up to 80
// tokens have four warpgroups of one m64 tile each: warps to hide the unpacking, which
// bounds them. Wider ones have two of two each, of one at 256 tokens, for their
// registers, and are worked on by pairs of blocks that fetch tokens for each other
// (grouped_pipe_sm90.cuh).

#include "kernels/grouped_copy_sm90.cuh"
#include "kernels/grouped_narrow_sm90.cuh"
#include "kernels/grouped_store_sm90.cuh"
#include "kernels/grouped_wide_sm90.cuh"
#include "kernels/launch.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/tma_sm90.cuh"

namespace {

using namespace moep;

// As lib/choose.c has them.
#define MOEP_TILES(X) X(8) X(16) X(32) X(48) X(64) X(80) X(96) X(128) X(256)

struct GroupedParams {
  moep_grouped_args args;
  GroupedPipe pipe;
  uint32_t paired;  // of wide tiles, as GroupedBlock has it
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Its units take the narrowest of its widths that holds them, at most three: for more the
// compiler finds no registers, and for n80 for one alone.
template <int kTile>
struct Widths {
  static constexpr int kMiddle = kTile == 256   ? 232
                                 : kTile == 128 ? 112
                                                : kTile;
  static constexpr int kNarrow = kTile == 256   ? 176
                                 : kTile == 128 ? 80
                                 : kTile == 96  ? 64
                                 : kTile == 80  ? 80
                                 : kTile == 64  ? 48
                                 : kTile == 48  ? 32
                                 : kTile > 8    ? kTile / 2
                                                : kTile;
};

// Of a thread, once the warpgroups know what they do; together at most what the block
// starts with: 384 x 168 or 640 x 96.
template <int kTile>
struct Registers {
  static constexpr bool kWide = Shape<kTile>::kWide;
  static constexpr int kConsumer = kTile > 128 ? 232 : kWide ? 224 : 112;
  static constexpr int kProducer = kTile > 128 ? 40 : kWide ? 56 : 32;
};

// A unit's totals, segments added in ascending order.
template <bool kUp, int kN, int kTile>
__device__ __forceinline__ void multiply(
    const GroupedBlock& block, uint32_t region, Consumer& at,
    float (&acc)[Shape<kTile>::kM][kN / 2]) {
  constexpr int kM = Shape<kTile>::kM;
  const uint32_t blocks = moep_ceil_div(block.k, MOEP_BLOCK_K);
  Totals<kN, kTile> totals;
  totals.clear();
  uint32_t from = 0;
  do {  // at least once: acc is never live before this place
    const uint32_t to = min(from + kBlocksOfSegment, blocks);
#pragma unroll
    for (int m = 0; m < kM; m++) {
#pragma unroll
      for (int i = 0; i < kN / 2; i++) acc[m][i] = 0.0f;
      wgmma_hold(acc[m]);
    }
    if constexpr (Shape<kTile>::kWide) {
      multiply_wide<kUp, kN, kTile>(block, at, from, to, blocks, acc);
    } else {
      multiply_narrow<kUp, kN, kTile>(block, at, from, to, blocks, acc);
    }
    drain<kN, kTile>(block, at, acc);
    if (from > 0) totals.add_to(region, acc);
    if (to < blocks) totals.set(region, acc);
    from = to;
  } while (from < blocks);
}

template <bool kUp, int kN, int kTile>
__device__ __forceinline__ void run_unit(const GroupedParams& params,
                                         const GroupedBlock& block,
                                         uint32_t index, uint32_t region,
                                         Consumer& at) {
  float acc[Shape<kTile>::kM][kN / 2];
  multiply<kUp, kN, kTile>(block, region, at, acc);
  // Found again rather than kept in registers.
  const GroupedWork unit = unit_at(params.args, block, index);
  if constexpr (kUp) {
    store_up<kN, kTile>(params.args, unit, region, acc);
  } else {
    store_down<kN, kTile>(params.args, unit, region, acc);
  }
}

template <bool kUp, int kTile>
__device__ __forceinline__ void consume(const GroupedParams& params,
                                        const GroupedBlock& block) {
  using W = Widths<kTile>;
  const uint32_t region =
      block.region + consumer_group() * params.pipe.region_bytes;
  Consumer at = {};
  each_unit(params.args, block, [&](uint32_t index) {
    const uint32_t count = unit_at(params.args, block, index).tokens;
    if (W::kNarrow < kTile && count <= W::kNarrow) {
      run_unit<kUp, W::kNarrow, kTile>(params, block, index, region, at);
    } else if (W::kMiddle < kTile && count <= W::kMiddle) {
      run_unit<kUp, W::kMiddle, kTile>(params, block, index, region, at);
    } else {
      run_unit<kUp, kTile, kTile>(params, block, index, region, at);
    }
  });
}

__device__ __forceinline__ void init_ring(const Ring& ring, uint32_t copiers,
                                          uint32_t users) {
  if (threadIdx.x >= kMaxStages) return;
  mbarrier_init(ring.full(threadIdx.x), copiers);
  mbarrier_init(ring.empty(threadIdx.x), users);
}

// Zeros in a ring of tokens: rows of a stage that no unit has filled cost the tensor cores
// little then, and most units of narrow tiles have few tokens.
__device__ __forceinline__ void clear_ring(uint8_t* stages, uint32_t bytes) {
#pragma unroll 1
  for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) {
    *reinterpret_cast<uint4*>(stages + at) = make_uint4(0, 0, 0, 0);
  }
  fence_proxy_async();
}

template <bool kUp, int kTile>
__device__ __forceinline__ GroupedBlock make_block(const GroupedParams& params,
                                                   uint8_t* start) {
  const moep_grouped_args& args = params.args;
  const GroupedPipe& pipe = params.pipe;
  constexpr uint32_t kWarps = Shape<kTile>::kWarpgroups * 4;
  const uint32_t base = shared_address(start);
  const uint32_t barriers = base + pipe.barriers();
  uint32_t* before = reinterpret_cast<uint32_t*>(start + pipe.units());
  GroupedBlock block;
  constexpr bool kNarrow = !Shape<kTile>::kWide;
  constexpr uint32_t kBarriers = 2 * kMaxStages * 8;
  block.tokens = {base, pipe.token_stage, barriers, pipe.token_stages};
  block.weights = {base + pipe.weights(), pipe.weight_stage,
                   barriers + kBarriers, pipe.weight_stages};
  if (kNarrow) {
    block.scales = block.weights;
    block.scales.stages += kBoxes;
  } else {
    block.scales = {base + pipe.scales(), pipe.scale_stage,
                    barriers + 2 * kBarriers, pipe.scale_stages};
  }
  block.region = base + pipe.regions();
  block.before = before;
  block.paired = kNarrow ? 0 : params.paired;
  block.weight_tiles = weight_tiles<kUp, kTile>(args);
  block.k = kUp ? args.hidden : args.inter;
  init_ring(block.tokens, kTokenCopiers, kWarps << block.paired);
  init_ring(block.weights, kNarrow ? kBoxCopiers : kWeightCopiers, kWarps);
  if (!kNarrow) init_ring(block.scales, kScaleCopiers, kWarps);
  // The copy engine sees them; the other threads do after grouped_tiles' barriers.
  fence_mbarrier_init();
  if (kNarrow) {
    clear_ring(start, pipe.weights());
  } else {
    __syncwarp();
    barrier_cluster();  // so does the other block of the pair
  }
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  grouped_tiles(args, args.site->expert_count, args.tile, before);
  return block;
}

template <bool kUp, int kTile>
__device__ __forceinline__ void run_block(const GroupedParams& params) {
  using S = Shape<kTile>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const GroupedBlock block = make_block<kUp, kTile>(params, memory);
  if (threadIdx.x < kGroupThreads) {
    setmaxnreg_dec<Registers<kTile>::kProducer>();
    if constexpr (S::kWide) {
      copy_wide<kUp, kTile>(params.args, block);
    } else {
      copy_narrow<kUp, kTile>(params.args, block);
    }
  } else {
    setmaxnreg_inc<Registers<kTile>::kConsumer>();
    consume<kUp, kTile>(params, block);
  }
  // No block of a pair ends while the other may write to its shared memory.
  if (S::kWide) {
    __syncwarp();
    barrier_cluster();
  }
}

#else  // compiled, never run

template <bool kUp, int kTile>
__device__ __forceinline__ void run_block(const GroupedParams&) {}

#endif

template <bool kUp, int kTile>
__global__ void __launch_bounds__(Shape<kTile>::kThreads, 1)
    grouped_kernel(const __grid_constant__ GroupedParams params) {
  run_block<kUp, kTile>(params);
}

// One stage more, if it fits.
bool grow(GroupedPipe& pipe, uint32_t GroupedPipe::*stages,
          uint32_t shared_bytes) {
  GroupedPipe more = pipe;
  more.*stages += 1;
  if (more.*stages > kMaxStages || more.bytes() > shared_bytes) return false;
  pipe = more;
  return true;
}

// The rings that fit a block's shared memory.
template <bool kUp, int kTile>
GroupedPipe pipe_of(const moep_grouped_args& args, uint32_t shared_bytes) {
  using S = Shape<kTile>;
  const uint32_t k = kUp ? args.hidden : args.inter;
  const uint32_t sums =
      kUp || k > MOEP_SEGMENT_K ? kRegionFours<kTile> * kGroupThreads * 16 : 0;
  const uint32_t results = kUp ? 0 : kTile * kDownPitch<S::kM>;
  GroupedPipe pipe = {};
  pipe.warpgroups = S::kWarpgroups;
  pipe.region_bytes = sums > results ? sums : results;
  pipe.scale_stage = S::kScaleStage;
  if (S::kWide) {
    pipe.token_stage = kTile * kWideTokens * 2;
    pipe.weight_stage = S::kRows * kWideWeights / 2;
    pipe.scale_stages = 2;
  } else {
    pipe.token_stage = kTile * kNarrowTokens<kTile> * 2;
    pipe.weight_stage = kBoxes + S::kScaleStage;
  }
  // Two at least: a stage of tokens is free when the next is full. Those of wide tiles
  // hold half a stage of weights.
  pipe.token_stages = S::kWide ? 3 : 2;
  pipe.weight_stages = 2;
  // Rings grow in turn, weights first: they come from far away.
  for (bool grown = true; grown;) {
    grown = grow(pipe, &GroupedPipe::weight_stages, shared_bytes);
    grown |= grow(pipe, &GroupedPipe::token_stages, shared_bytes);
  }
  return pipe;
}

template <bool kUp, int kTile>
cudaError_t launch_tile(const moep_grouped_args& args,
                        const moep_launch& launch, cudaStream_t stream) {
  using S = Shape<kTile>;
  const bool paired = S::kWide && launch.grid[0] % 2 == 0 &&
                      weight_tiles<kUp, kTile>(args) % 2 == 0;
  const GroupedParams params = {
      args, pipe_of<kUp, kTile>(args, launch.shared_bytes), paired};
  return moep::launch<const GroupedParams>(
      grouped_kernel<kUp, kTile>, params, launch, S::kThreads,
      params.pipe.bytes(), stream, moep::Blocks{false, paired ? 2u : 1u});
}

template <bool kUp>
cudaError_t launch_any(const moep_grouped_args& args, const moep_launch& launch,
                       cudaStream_t stream) {
  switch (args.tile) {
#define MOEP_TILE(n) \
  case n:            \
    return launch_tile<kUp, n>(args, launch, stream);
    MOEP_TILES(MOEP_TILE)
#undef MOEP_TILE
  }
  return cudaErrorInvalidValue;
}

template <bool kUp>
cudaError_t load_any() {
  cudaError_t error = cudaSuccess;
#define MOEP_TILE(n) \
  if (error == cudaSuccess) error = moep::load(grouped_kernel<kUp, n>);
  MOEP_TILES(MOEP_TILE)
#undef MOEP_TILE
  return error;
}

}  // namespace

cudaError_t moep_grouped_up_nvfp4_sm90(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  return launch_any<true>(args->grouped_up, *launch, stream);
}

cudaError_t moep_grouped_up_nvfp4_sm90_load(void) { return load_any<true>(); }

cudaError_t moep_grouped_down_nvfp4_sm90(const union moep_args* args,
                                         const struct moep_launch* launch,
                                         cudaStream_t stream) {
  return launch_any<false>(args->grouped_down, *launch, stream);
}

cudaError_t moep_grouped_down_nvfp4_sm90_load(void) {
  return load_any<false>();
}
