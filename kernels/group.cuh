// What the parts of the group kernel share: a block's memory, its work, and the
// partial sums of tiles whose segments different warps have.
//
// The work of a block is a list of phases; a phase is a list of units (tile,
// segment of K). Within a pass the warps take the units of all its phases in
// turn: warp w has the units w, w + warps, ..

#ifndef MOEPLAN_KERNELS_GROUP_CUH_
#define MOEPLAN_KERNELS_GROUP_CUH_

#include "kernels/quotient.cuh"
#include "kernels/ring.cuh"
#include "kernels/route_block.cuh"

namespace moep {

enum Projection { kGate, kUp, kDown };

// An expert of the union that is on this rank.
struct Entry {
  const uint8_t* weight[3];
  const uint8_t* scale[3];
  float epilogue[3];
  uint32_t index;  // in the union
};

// What a phase does. Logits and ffn_up make the first pass; up and then, chunk by
// chunk of columns, ffn_down and down the second.
enum Kind { kLogits, kFfnUp, kExpertUp, kFfnDown, kExpertDown, kKinds };

// Columns, or experts of the router, of a tile. The bf16 tiles have 4 rows: 4
// columns, or 2 of gate and 2 of up. Those of NVFP4 have 16: 8 of gate and 8 of
// up, or 16 columns.
constexpr uint32_t kLogitsTile = 4;
constexpr uint32_t kFfnUpTile = 2;
constexpr uint32_t kExpertUpTile = 8;
constexpr uint32_t kFfnDownTile = 4;
constexpr uint32_t kDownTile = 16;

// Tiles in flight whose segments different warps have, at most.
constexpr uint32_t kMaxDepth = MOEP_GROUP_MIN_PARTIALS;

struct GroupShared {
  RouteShared route;
  Entry entry[MOEP_UNION_ENTRIES];
  uint32_t logits_done;  // the grid's barrier: token of the first thread
  uint32_t entries;
  uint32_t bits[2];  // bit: a slot that opens an entry on this rank
  uint8_t here[MOEP_UNION_ENTRIES];      // by group slot: its expert is here
  uint32_t count[kExpertUp][kMaxDepth];  // of the first pass's tiles
};
static_assert(sizeof(GroupShared) <= MOEP_GROUP_FIXED_BYTES, "fixed part");

// How a number is shared out evenly, in order: the first `more` blocks have one more.
struct Even {
  uint32_t each, more;
};

// What the host finds out for all blocks.
struct GroupShape {
  // Of the router's experts, and of tiles of kFfnUp and kExpertDown.
  Even even[kKinds];
  Divisor blocks;    // of the grid
  Divisor up_tiles;  // of an expert's gate and up
  Divisor chunk;     // tiles of 16 columns that are finished together
  // From the block's memory to rows of h of the slots, behind all else; 0: no room.
  uint32_t h;
};

// One block of the grid and its memory. kRing: NVFP4 units go through the ring. kBare:
// they do, and in whole stages; the ids come from outside, there is no shared expert,
// and nothing is tapped. That is half of the code, and much of it runs once.
template <bool kRingOrNot, bool kBareOrNot>
struct GroupBlock {
  static constexpr bool kRing = kRingOrNot, kBare = kBareOrNot;
  static_assert(kRing || !kBare, "bare with the ring");

  const moep_group_args& args;
  const GroupShape& shape;
  GroupShared& shared;
  uint8_t* xs;     // rows of x in lane order; then of the shared expert's h,
                   // and columns before the combine
  uint8_t* rings;  // the warps'; before and between, scratch
  uint32_t front_warps;  // that work in the first pass
};

__device__ __forceinline__ uint32_t warp_of_block() { return threadIdx.x / 32; }
__device__ __forceinline__ uint32_t warps_of_block() { return blockDim.x / 32; }

// The expert of the thread's slot; all zeros of what is no slot, or an unfilled one.
template <typename Block>
__device__ __forceinline__ moep_expert expert_of_slot(const Block& block) {
  const moep_route_args& route = block.args.route;
  const uint32_t s = threadIdx.x;
  if (s >= route.rows.count * route.rule.topk) return {};
  const int32_t id = block.shared.route.ids[s];
  return id >= 0 ? route.site->experts[id] : moep_expert{};
}

// The union and its entries, in its order, where each thread has the expert of its slot.
// All threads of the block call.
template <typename Block>
__device__ __forceinline__ void find_entries(const Block& block,
                                             const moep_expert& expert) {
  GroupShared& shared = block.shared;
  const moep_route_args& route = block.args.route;
  const uint32_t s = threadIdx.x, topk = route.rule.topk;
  if (s < MOEP_UNION_ENTRIES) shared.here[s] = 0;
  const uint32_t u = union_block(route.rows.count, topk, shared.route);
  const bool here = u != kNoEntry && expert.gate.weight != nullptr;
  const uint32_t at = count_before(here, shared.bits);
  if (here) {
    const moep_nvfp4* projection = &expert.gate;
    Entry& entry = shared.entry[at];
#pragma unroll
    for (int i = 0; i < 3; i++) {
      entry.weight[i] = projection[i].weight;
      entry.scale[i] = projection[i].scale;
      entry.epilogue[i] = projection[i].epilogue;
    }
    entry.index = u;
    for (uint32_t r = 0; r < route.rows.count; r++) {
      const int32_t j = shared.route.slot[u * MOEP_UNION_ROWS + r];
      if (j >= 0) shared.here[r * topk + j] = 1;
    }
  }
  if (s == 0) {
    shared.entries = __popc(shared.bits[0]) + __popc(shared.bits[1]);
  }
}

// Whether this warp now has the whole of a tile in `sum`, the segments added in
// ascending order: the warp that brings a tile's last segment does. There are
// places for `depth` tiles at a time; tiles come roughly in order, and place and
// counter are free again once the tile `depth` before is complete.
template <typename Block>
__device__ __forceinline__ bool deliver(const Block& block, Kind kind,
                                        uint32_t tile, uint32_t segment,
                                        uint32_t segments, float (&sum)[4]) {
  if (segments == 1) return true;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t depth =
      min(moep_group_partials(block.args.hidden) / segments, kMaxDepth);
  const uint32_t at = tile % depth, base = tile / depth * (segments + 1);
  float4* place =
      reinterpret_cast<float4*>(block.rings +
                                block.front_warps * moep_group_warp_bytes()) +
      at * segments * 32 + lane;
  uint32_t* count = &block.shared.count[kind][at];
  uint32_t before = 0;
  if (lane == 0) {
    while (ld_volatile_shared_u32(count) < base) {
    }
    __threadfence_block();
  }
  __syncwarp();
  place[segment * 32] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  __threadfence_block();
  __syncwarp();
  if (lane == 0) before = atomicAdd(count, 1);
  before = __shfl_sync(~0u, before, 0);
  if (before - base != segments - 1) return false;
  __threadfence_block();
#pragma unroll 1
  for (uint32_t s = 0; s < segments; s++) {
    const float4 next = place[s * 32];
    const float part[4] = {next.x, next.y, next.z, next.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[i] = s == 0 ? part[i] : __fadd_rn(sum[i], part[i]);
    }
  }
  __threadfence_block();
  __syncwarp();
  if (lane == 0) atomicAdd(count, 1);
  return true;
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUP_CUH_
