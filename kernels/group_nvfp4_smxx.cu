// group: a routed site for at most 8 rows, from x to y, in one node.
//
// Memory-bound: every byte of the router, the shared expert and the experts of
// the rows' union is read once. A persistent, cooperative grid, one block an SM:
//
//   logits, then the shared expert's first half; a barrier of the grid between
//   them is waited for after both
//   routing: top-k, weights, union; by each block for itself
//   gate, up and SwiGLU of the routed experts, a barrier of the grid
//   the shared expert's and the routed experts' second half, the combine
//
// Each warp streams its weights through a ring of its own, which runs ahead over
// the end of a unit and across the second barrier. All phases share one loop:
// code that runs once is read from memory once, and that costs more than what it
// does.

#include <cooperative_groups.h>

#include "kernels/group_pass.cuh"
#include "kernels/launch.cuh"

namespace {

using moep::GroupShape;
using moep::Phase;
using Grid = cooperative_groups::grid_group;

constexpr uint32_t kMaxThreads = MOEP_GROUP_MAX_WARPS * 32;
constexpr uint32_t kLeastL1 = 8 * 1024;  // of what a block could have

struct GroupParams {
  moep_group_args args;
  GroupShape shape;
};

template <typename Block>
__device__ __forceinline__ Block block_of(const GroupParams& params,
                                          uint8_t* start) {
  const moep_group_args& args = params.args;
  const uint32_t base = moep_group_base_bytes(
      args.hidden, args.width, args.route.rows.count, args.route.rule.topk);
  return {args,
          params.shape,
          *reinterpret_cast<moep::GroupShared*>(start),
          start + MOEP_GROUP_FIXED_BYTES,
          start + base,
          min(moep_group_front_warps(args.hidden,
                                     moep::dynamic_shared_bytes() - base),
              moep::warps_of_block())};
}

// ids, weights and trace for whoever wants to see them: by one block.
__device__ __forceinline__ void publish(const moep_route_args& route,
                                        const moep::RouteShared& shared) {
  const uint32_t topk = route.rule.topk, slots = route.rows.count * topk;
  const uint64_t slot0 = uint64_t{route.rows.begin} * topk;
  const uint32_t end = moep_rows_end(&route.rows);
  const uint64_t cursor =
      route.trace.cursor == nullptr ? 0 : *route.trace.cursor;
  for (uint32_t s = threadIdx.x; s < slots; s += blockDim.x) {
    route.ids[slot0 + s] = shared.ids[s];
    route.weights[slot0 + s] = shared.weights[s];
    if (route.trace.cursor == nullptr || route.rows.begin + s / topk >= end) {
      continue;
    }
    const uint64_t at =
        (cursor + s / topk) % route.trace.capacity * topk + s % topk;
    route.trace.ids[at] = shared.ids[s];
    route.trace.weights[at] = shared.weights[s];
  }
  __syncthreads();
  if (threadIdx.x != 0 || route.trace.cursor == nullptr) return;
  *route.trace.cursor = cursor + moep_rows_alive(&route.rows);
}

// The grid's barrier behind the logits, in two halves. Its token matters to the
// first thread only.
template <typename Block>
__device__ __forceinline__ void logits_done(const Block& block) {
  const Grid::arrival_token token =
      cooperative_groups::this_grid().barrier_arrive();
  if (threadIdx.x == 0) block.shared.logits_done = token;
}

template <typename Block>
__device__ __forceinline__ void wait_for_logits(const Block& block) {
  Grid::arrival_token token = 0;
  if (threadIdx.x == 0) token = block.shared.logits_done;
  cooperative_groups::this_grid().barrier_wait(std::move(token));
}

// x into shared memory. In a bare block two warps have ids and weights ready meanwhile;
// returns the expert of the thread's slot there.
template <typename Block>
__device__ __forceinline__ moep_expert
bring_x(const Block& block, const moep::OutsideSlot& outside) {
  const moep_group_args& args = block.args;
  const uint32_t s = threadIdx.x;
  const uint32_t first = Block::kBare ? MOEP_UNION_ENTRIES : 0;
  if (!Block::kBare || s >= MOEP_UNION_ENTRIES) {
    moep::stage_rows(block, args.x.data, args.x.stride, args.hidden, first);
    return {};
  }
  if (s >= args.route.rows.count * args.route.rule.topk) return {};
  moep::RouteShared& shared = block.shared.route;
  moep::store_slot(args.route, outside, shared.ids + s, shared.weights + s);
  return moep::expert_of_slot(block);
}

template <typename Block>
__global__ void __launch_bounds__(kMaxThreads, 1)
    group_kernel(const __grid_constant__ GroupParams params) {
  extern __shared__ __align__(MOEP_GROUP_ALIGNMENT) uint8_t memory[];
  const moep_group_args& args = params.args;
  const Block block = block_of<Block>(params, memory);
  const bool routed = !Block::kBare && args.route.external_ids == nullptr;
  moep::prefetch_site(args.route.site, args.route.rule.experts);
  for (uint32_t i = threadIdx.x; i < moep::kMaxDepth; i += blockDim.x) {
    block.shared.count[moep::kLogits][i] = 0;
    block.shared.count[moep::kFfnUp][i] = 0;
  }
  // Where no expert has to be known, weights are on their way before x may be read.
  const bool front = !Block::kBare && (routed || args.width != 0);
  moep::Pass work = {};
  if (front) {
    work = moep::open_pass(block, routed ? moep::kLogits : moep::kFfnUp,
                           moep::kExpertUp);
  }
  moep::griddepcontrol_wait();
  const uint32_t topk = args.route.rule.topk;
  const moep::OutsideSlot outside = moep::outside_slot(
      args.route, uint64_t{args.route.rows.begin} * topk + threadIdx.x,
      threadIdx.x < moep_rows_alive(&args.route.rows) * topk);
  moep_expert expert = bring_x(block, outside);
  __syncthreads();
#pragma unroll 1
  for (uint32_t pass = front ? 0 : 1; pass < 2; pass++) {
    if (pass == 1) {
      if (!Block::kBare) {
        if (routed) {
          // The memory has nothing to do until experts are known.
          if (args.width != 0) moep::prefetch_ffn_down(block);
          wait_for_logits(block);
        }
        __syncthreads();
        moep::route_block(args.route, outside, block.rings, block.shared.route);
        expert = moep::expert_of_slot(block);
      }
      moep::find_entries(block, expert);
      __syncthreads();
      work = moep::open_pass(block, moep::kExpertUp, moep::phases_end(block));
    }
    moep::run_pass(block, work, [&](const Phase& phase) {
      if (routed && phase.kind == moep::kLogits) logits_done(block);
      if (phase.kind == moep::kExpertUp) {
        moep::pad_h(block);
        Grid::arrival_token h_done =
            cooperative_groups::this_grid().barrier_arrive();
        if (blockIdx.x == gridDim.x - 1) {
          publish(args.route, block.shared.route);
        }
        cooperative_groups::this_grid().barrier_wait(std::move(h_done));
        if (!Block::kBare && args.width != 0) {
          moep::stage_rows(block, args.ffn_h, args.width, args.width);
        }
        if (params.shape.h != 0) moep::stage_h(block);
        __syncthreads();
      }
      if (phase.kind == moep::kExpertDown) {
        __syncthreads();
        moep::combine(block, phase);
        __syncthreads();
      }
    });
  }
}

using Direct = moep::GroupBlock<false, false>;
using Ringed = moep::GroupBlock<true, false>;
using Bare = moep::GroupBlock<true, true>;
using Kernel = void (*)(const GroupParams);

Kernel kernel_of(const moep_group_args& args) {
  // Divided by a power of two, both widths are multiples of it or this is none.
  const uint32_t widths = args.hidden | args.inter;
  if (widths % moep::kHalfK != 0) return group_kernel<Direct>;
  const bool bare = widths % moep::kStageK == 0 && args.width == 0 &&
                    args.route.external_ids != nullptr &&
                    args.tap.expert_up == nullptr &&
                    args.tap.expert_down == nullptr;
  return bare ? group_kernel<Bare> : group_kernel<Ringed>;
}

moep::Even even_of(uint32_t all, uint32_t blocks) {
  return {all / blocks, all % blocks};
}

GroupShape shape_of(const moep_group_args& args, uint32_t blocks) {
  const moep_route_args& route = args.route;
  const uint32_t rows = route.rows.count, topk = route.rule.topk;
  const bool routed = route.external_ids == nullptr;
  // Where x was, a chunk's columns lie behind the shared expert's rows of h.
  const uint32_t room =
      moep_group_x_bytes(args.hidden, args.width, rows, topk) -
      rows * moep_group_x_pitch(args.width);
  GroupShape shape = {};
  shape.even[moep::kLogits] = even_of(routed ? route.rule.experts : 0, blocks);
  shape.even[moep::kFfnUp] = even_of(args.width / moep::kFfnUpTile, blocks);
  shape.even[moep::kExpertDown] =
      even_of(args.hidden / moep::kDownTile, blocks);
  shape.blocks = moep::divisor_of(blocks);
  shape.up_tiles = moep::divisor_of(args.inter / moep::kExpertUpTile);
  shape.chunk = moep::divisor_of(room / moep_group_tile_bytes(rows, topk));
  return shape;
}

}  // namespace

cudaError_t moep_group_nvfp4_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const moep_group_args& group = args->group;
  const uint32_t rows = group.route.rows.count;
  const uint32_t base = moep_group_base_bytes(group.hidden, group.width, rows,
                                              group.route.rule.topk);
  const uint32_t bytes = launch->shared_bytes - base;
  GroupParams params = {group, shape_of(group, launch->grid[0])};
  uint32_t all = base + moep_group_rest_bytes(group.hidden, rows,
                                              group.route.rule.experts, bytes);
  // The rest is L1: leave it some.
  const uint32_t h =
      rows * group.route.rule.topk * moep_group_x_pitch(group.inter);
  if (all + h + kLeastL1 <= launch->shared_bytes) {
    params.shape.h = moep_round_up(all, 128);
    all = params.shape.h + h;
  }
  return moep::launch<const GroupParams>(
      kernel_of(group), params, *launch, moep_group_warps(bytes) * 32, all,
      stream, moep::Blocks{/*cooperative=*/true});
}

cudaError_t moep_group_nvfp4_smxx_load(void) {
  cudaError_t error = moep::load(group_kernel<Direct>);
  if (error == cudaSuccess) error = moep::load(group_kernel<Ringed>);
  return error != cudaSuccess ? error : moep::load(group_kernel<Bare>);
}
