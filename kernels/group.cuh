// What the two nodes of a group share: the entries of the union that are on this
// rank, and a warp's walk over units of 512-k stages through its ring.

#ifndef MOEPLAN_KERNELS_GROUP_CUH_
#define MOEPLAN_KERNELS_GROUP_CUH_

#include "kernels/kernels.h"
#include "kernels/nvfp4_ring.cuh"
#include "kernels/route_block.cuh"

namespace moep {

constexpr uint32_t kSegmentStages = MOEP_SEGMENT_K / kStageK;
constexpr uint32_t kRingStages = 2;  // of each warp
constexpr uint32_t kRingBytes = kRingStages * kStageBytes;

// An expert of the union that is on this rank: gate and up, or down twice.
struct Entry {
  moep_nvfp4 low, high;
  uint32_t index;  // in the union
};

struct Entries {
  Entry entry[MOEP_UNION_ENTRIES];
  uint32_t count;
  uint32_t bits[2];  // bit: an entry of the union that is on this rank
};

// Warps of a block: as many as have rings in what the fixed part leaves of its
// shared memory. At least 8, whose rings have room for the routing's scores (8
// rows of 1024 experts) and whose lanes number the union: the planner narrows a
// group until they fit.
inline uint32_t group_warps(const moep_launch& launch, size_t fixed_bytes,
                            uint32_t most) {
  const size_t left =
      launch.shared_bytes > fixed_bytes ? launch.shared_bytes - fixed_bytes : 0;
  const size_t warps = left / kRingBytes;
  return warps < 8 ? 8 : warps < most ? static_cast<uint32_t>(warps) : most;
}
static_assert(8 * kRingBytes >= MOEP_UNION_ROWS * MOEP_MAX_EXPERTS * 8,
              "scores of a group");

// In the union's order. All threads of the block call.
template <typename Select>
__device__ __forceinline__ void find_entries(const moep_site_table* site,
                                             const RouteShared& route,
                                             Entries& entries, Select select) {
  const uint32_t u = threadIdx.x;
  const moep_expert* expert =
      u < route.used ? site->experts + route.eid[u] : nullptr;
  const bool here = expert != nullptr && expert->gate.weight != nullptr;
  const uint32_t at = count_before(here, entries.bits);
  if (here) entries.entry[at] = select(*expert, u);
  if (u == 0) {
    entries.count = __popc(entries.bits[0]) + __popc(entries.bits[1]);
  }
  __syncthreads();
}

// A warp's ring and its lane's places in it.
struct Ring {
  uint32_t begin, end;
  uint32_t stage;  // the next one to use
  uint32_t target, words;
};

__device__ __forceinline__ Ring ring_of_warp(const uint8_t* rings) {
  Ring ring;
  ring.begin = shared_address(rings) + threadIdx.x / 32 * kRingBytes;
  ring.end = ring.begin + kRingBytes;
  ring.stage = ring.begin;
  ring.target = ring_target();
  ring.words = ring_words();
  return ring;
}

// What a warp copies next: a stage of a unit. left == 0: nothing more.
struct Cursor {
  uint32_t unit;
  uint32_t left;
  RingSource source;
};

// Copy the cursor's stage, if there is one; open(unit, cursor) starts the next
// unit of this warp. One group is committed in any case.
template <typename Open>
__device__ __forceinline__ void copy_stage(uint32_t stage, uint32_t target,
                                           Cursor& cursor, Open open) {
  if (cursor.left != 0) {
    ring_copy(cursor.source, stage, target);
    if (--cursor.left == 0) open(cursor.unit + blockDim.x / 32, cursor);
  }
  cp_async_commit_group();
}

// Start with a full ring.
template <typename Open>
__device__ __forceinline__ void fill_ring(Ring& ring, Cursor& cursor,
                                          uint32_t unit, Open open) {
  ring.stage = ring.begin;
  open(unit, cursor);
#pragma unroll 1
  for (uint32_t stage = ring.begin; stage != ring.end; stage += kStageBytes) {
    copy_stage(stage, ring.target, cursor, open);
  }
}

// Add a segment's chain to the total of the segments before.
__device__ __forceinline__ void add_segment(bool first, const float (&acc)[4],
                                            float (&total)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    total[i] = first ? acc[i] : __fadd_rn(total[i], acc[i]);
  }
}

// A lane's activations of one block: word j of each 32 positions.
struct Operands {
  uint4 word[4];
};

// All segments of one unit through the ring; k is a multiple of 512. operands(i)
// loads block i of the stage (block 4: the first of the next one), next() moves
// on by a stage. Operands are loaded a block ahead.
template <typename Load, typename Next, typename Open>
__device__ __forceinline__ void run_unit(uint32_t k, Ring& ring, Cursor& cursor,
                                         float (&total)[4], Load operands,
                                         Next next, Open open) {
  const uint32_t stages = k / kStageK;
  Operands ahead = operands(0);
#pragma unroll 1
  for (uint32_t first = 0; first < stages; first += kSegmentStages) {
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const uint32_t last = min(first + kSegmentStages, stages);
#pragma unroll 1
    for (uint32_t s = first; s < last; s++) {
      cp_async_wait_group<kRingStages - 1>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const Operands now = ahead;
        if (i < 3 || s + 1 < stages) ahead = operands(i + 1);
        nv_block(ring_block(ring.stage, ring.words, i), acc,
                 [&](int j) { return now.word[j]; });
      }
      next();
      __syncwarp();
      copy_stage(ring.stage, ring.target, cursor, open);
      ring.stage += kStageBytes;
      if (ring.stage == ring.end) ring.stage = ring.begin;
    }
    add_segment(first == 0, acc, total);
  }
}

// The same for any k, block by block: no ring. operand(j) is of the current
// block, next() moves on by a block.
template <typename Operand, typename Next>
__device__ __forceinline__ void run_unit_direct(uint32_t k, NvRows rows,
                                                float (&total)[4],
                                                Operand operand, Next next) {
  constexpr uint32_t kSegmentBlocks = MOEP_SEGMENT_K / MOEP_BLOCK_K;
  const uint32_t blocks = moep_ceil_div(k, MOEP_BLOCK_K);
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  NvBlock ahead;
  nv_load(rows, 0, k, ahead);
#pragma unroll 1
  for (uint32_t b = 0; b < blocks; b++) {
    const NvBlock now = ahead;
    if (b + 1 < blocks) nv_load(rows, b + 1, k, ahead);
    nv_block(now, acc, operand);
    next();
    if ((b + 1) % kSegmentBlocks != 0 && b + 1 < blocks) continue;
    add_segment(b < kSegmentBlocks, acc, total);
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = 0.0f;
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUP_CUH_
