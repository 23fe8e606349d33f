// The work of a block of the group kernel: its shares, its phases, which weights
// a unit reads and what it multiplies them with.

#ifndef MOEPLAN_KERNELS_GROUP_WORK_CUH_
#define MOEPLAN_KERNELS_GROUP_WORK_CUH_

#include "kernels/group.cuh"

namespace moep {

// The block's: experts of the router, or tiles. Tiles of gate and up come entry by
// entry; those of down are columns of y with everything that goes into them, so that the
// combine needs no other block.
struct Share {
  uint32_t first, last;
};

template <typename Block>
__device__ __forceinline__ Share share_of(const Block& block, Kind kind) {
  Even even = block.shape.even[kind];
  if (kind == kExpertUp) {
    const Divisor& blocks = block.shape.blocks;
    const uint32_t all = block.shared.entries * block.shape.up_tiles.value;
    even.each = quotient(all, blocks);
    even.more = all - even.each * blocks.value;
  }
  const uint32_t first = blockIdx.x * even.each + min(blockIdx.x, even.more);
  return {first, first + even.each + (blockIdx.x < even.more ? 1 : 0)};
}

constexpr uint32_t kFirstDown = 3;  // phase
template <typename Block>
constexpr uint32_t kOfChunk = Block::kBare ? 1 : 2;  // phases

// Past the last phase.
template <typename Block>
__device__ __forceinline__ uint32_t phases_end(const Block& block) {
  const Share share = share_of(block, kExpertDown);
  const Divisor chunk = block.shape.chunk;
  return kFirstDown +
         kOfChunk<Block> *
             quotient(share.last - share.first + chunk.value - 1, chunk);
}

struct Phase {
  Kind kind;
  uint32_t first;  // tile of 16 columns of the chunk, in the down phases
  uint32_t tiles;
  uint32_t down_tiles;         // of 16 columns
  uint32_t segments, segment;  // units of a tile; k of each
  uint32_t k;

  __device__ uint32_t units() const { return tiles * segments; }
};

// Whether a phase multiplies bf16 weights.
template <typename Block>
__device__ __forceinline__ bool is_bf16(const Phase& phase) {
  return !Block::kBare && phase.kind != kExpertUp && phase.kind != kExpertDown;
}

template <typename Block>
__device__ __forceinline__ Phase phase_at(const Block& block, uint32_t index) {
  const moep_group_args& args = block.args;
  const GroupShared& shared = block.shared;
  Phase phase = {};
  phase.k = args.hidden;
  if (index < kFirstDown) {
    phase.kind = Block::kBare ? kExpertUp : static_cast<Kind>(index);
    const Share share = share_of(block, phase.kind);
    phase.tiles = share.last - share.first;
    if (!Block::kBare && phase.kind == kLogits) {
      phase.tiles = moep_ceil_div(phase.tiles, kLogitsTile);
    }
  } else {
    const Share share = share_of(block, kExpertDown);
    const uint32_t chunk = block.shape.chunk.value;
    const bool ffn = !Block::kBare && index % 2 == kFirstDown % 2;
    phase.kind = ffn ? kFfnDown : kExpertDown;
    phase.k = ffn ? args.width : args.inter;
    phase.first = share.first + (index - kFirstDown) / kOfChunk<Block> * chunk;
    phase.down_tiles = min(share.last - phase.first, chunk);
    phase.tiles =
        phase.down_tiles * (ffn ? kDownTile / kFfnDownTile : shared.entries);
  }
  if (Block::kBare || index >= kExpertUp) {  // a unit is a whole tile
    phase.segment = phase.k;
    phase.segments = Block::kBare ? 1 : min(phase.k, 1u);
  } else if (phase.kind == kLogits) {
    phase.segment = MOEP_ROUTER_SEGMENT_K;
    phase.segments = moep_ceil_div(phase.k, MOEP_ROUTER_SEGMENT_K);
  } else {
    phase.segment = MOEP_SEGMENT_K;
    phase.segments = moep_ceil_div(phase.k, MOEP_SEGMENT_K);
  }
  return phase;
}

// A unit of a phase.
struct Unit {
  uint32_t tile, segment;
  uint32_t begin, length;  // k
};

__device__ __forceinline__ Unit unit_at(const Phase& phase, uint32_t index) {
  const uint32_t tile =
      phase.segments == 1 ? index : small_quotient(index, phase.segments);
  const uint32_t segment = index - tile * phase.segments;
  const uint32_t begin = segment * phase.segment;
  return {tile, segment, begin, min(phase.k - begin, phase.segment)};
}

// Entry and first row of a unit of the routed experts.
struct Place {
  uint32_t entry;
  uint32_t row;
};

template <typename Block>
__device__ __forceinline__ Place place_of(const Block& block,
                                          const Phase& phase, uint32_t tile) {
  if (phase.kind == kExpertUp) {
    const Divisor tiles = block.shape.up_tiles;
    const uint32_t at = share_of(block, kExpertUp).first + tile;
    const uint32_t entry = quotient(at, tiles);
    return {entry, (at - entry * tiles.value) * kExpertUpTile};
  }
  const uint32_t entry = small_quotient(tile, phase.down_tiles);
  const uint32_t of_chunk = tile - entry * phase.down_tiles;
  return {entry, (phase.first + of_chunk) * kDownTile};
}

__device__ __forceinline__ const uint8_t* bytes_of(const uint16_t* pointer) {
  return reinterpret_cast<const uint8_t*>(pointer);
}

// The weights of a unit.
template <typename Block>
__device__ __forceinline__ TileRows rows_of(const Block& block,
                                            const Phase& phase,
                                            const Unit& unit) {
  const moep_group_args& args = block.args;
  const moep_site_table* site = args.route.site;
  TileRows rows = {};
  rows.k = unit.length;
  if (!is_bf16<Block>(phase)) {
    const Place place = place_of(block, phase, unit.tile);
    const Entry& entry = block.shared.entry[place.entry];
    const Projection low = phase.kind == kExpertUp ? kGate : kDown;
    const Projection high = phase.kind == kExpertUp ? kUp : kDown;
    const uint32_t high_row = place.row + (phase.kind == kExpertUp ? 0 : 8);
    rows.pitch = phase.k / 2;
    const uint32_t weight = unit.begin / 2, scale = unit.begin / 16;
    rows.low = entry.weight[low] + place.row * rows.pitch + weight;
    rows.high = entry.weight[high] + high_row * rows.pitch + weight;
    rows.low_scale = entry.scale[low] + place.row * (rows.pitch / 8) + scale;
    rows.high_scale = entry.scale[high] + high_row * (rows.pitch / 8) + scale;
    return rows;
  }
  const uint16_t *low = site->router, *high = nullptr;
  uint64_t pitch = args.hidden;
  uint32_t row;
  rows.bf16_rows = kBfRows;
  if (phase.kind == kFfnUp) {
    low = site->ffn.gate;
    high = site->ffn.up;
    row = (share_of(block, kFfnUp).first + unit.tile) * kFfnUpTile;
  } else if (phase.kind == kFfnDown) {
    low = site->ffn.down;
    pitch = site->ffn.down_pitch;
    row = phase.first * kDownTile + unit.tile * kFfnDownTile;
  } else {
    const Share share = share_of(block, kLogits);
    row = share.first + unit.tile * kLogitsTile;
    rows.bf16_rows = min(share.last - row, kBfRows);
  }
  if (phase.kind != kFfnUp) high = low + 2 * pitch;
  rows.low = bytes_of(low + row * pitch + unit.begin);
  rows.high = bytes_of(high + row * pitch + unit.begin);
  rows.pitch = static_cast<uint32_t>(pitch * 2);
  return rows;
}

__device__ __forceinline__ uint64_t slot_of(const moep_group_args& args,
                                            uint32_t r, int32_t j) {
  return uint64_t{args.route.rows.begin + r} * args.route.rule.topk +
         static_cast<uint32_t>(j);
}

// A slot's row of h where it is in shared memory.
template <typename Block>
__device__ __forceinline__ uint8_t* h_row(const Block& block, uint32_t slot) {
  return reinterpret_cast<uint8_t*>(&block.shared) + block.shape.h +
         slot * moep_group_x_pitch(block.args.inter);
}

// This lane's row of activations for a unit, from its first k on, or null: zeros. For
// bf16 weights a row that is not alive is the first one: nobody takes its sums.
// In shared memory, but for h of the routed experts where that is too much.
template <typename Block>
__device__ __forceinline__ const uint8_t* operand_of(const Block& block,
                                                     const Phase& phase,
                                                     const Unit& unit) {
  const moep_group_args& args = block.args;
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  uint32_t r = lane / 4;
  const uint64_t row = args.route.rows.begin + r;
  int32_t j = 0;
  if (is_bf16<Block>(phase)) {
    if (row >= moep_rows_end(&args.route.rows)) r = 0;
  } else {
    if (row >= moep_rows_end(&args.route.rows)) return nullptr;
    const Place place = place_of(block, phase, unit.tile);
    const uint32_t index = block.shared.entry[place.entry].index;
    j = block.shared.route.slot[index * MOEP_UNION_ROWS + r];
    // Zeros instead of rows that do not want the expert: the tensor cores take less.
    if (j < 0) return nullptr;
  }
  if (phase.kind != kExpertDown) {
    return block.xs + r * moep_group_x_pitch(phase.k) + unit.begin * 2 +
           (is_bf16<Block>(phase) ? bf_place() : t * 16);
  }
  if (block.shape.h != 0) {
    const uint32_t slot = r * args.route.rule.topk + static_cast<uint32_t>(j);
    return h_row(block, slot) + unit.begin * 2 + t * 16;
  }
  return bytes_of(args.h + slot_of(args, r, j) * moep_padded_k(args.inter) +
                  unit.begin) +
         t * 16;
}

// h of the slots whose experts are here into shared memory, as it is. Ends without a
// barrier.
template <typename Block>
__device__ __forceinline__ void stage_h(const Block& block) {
  const moep_group_args& args = block.args;
  const uint32_t slots = args.route.rows.count * args.route.rule.topk;
  const uint32_t pieces = moep_padded_k(args.inter) / 8;
#pragma unroll 1
  for (uint32_t part = warp_of_block(); part < 2 * slots;
       part += warps_of_block()) {
    const uint32_t slot = part / 2;
    if (block.shared.here[slot] == 0) continue;
    const uint4* from = reinterpret_cast<const uint4*>(
        args.h + (slot_of(args, 0, 0) + slot) * moep_padded_k(args.inter));
    uint4* to = reinterpret_cast<uint4*>(h_row(block, slot));
#pragma unroll 4
    for (uint32_t i = part % 2 * 32 + threadIdx.x % 32; i < pieces; i += 64) {
      to[i] = from[i];
    }
  }
}

// Bring the block's rows of the shared expert's down into the L2.
template <typename Block>
__device__ __forceinline__ void prefetch_ffn_down(const Block& block) {
  constexpr uint32_t kLine = 128;
  const moep_group_args& args = block.args;
  const moep_ffn& ffn = args.route.site->ffn;
  const Share share = share_of(block, kExpertDown);
#pragma unroll 1
  for (uint32_t row = share.first * kDownTile + warp_of_block();
       row < share.last * kDownTile; row += warps_of_block()) {
    const uint8_t* from = bytes_of(ffn.down + row * ffn.down_pitch);
    for (uint32_t at = threadIdx.x % 32 * kLine; at < args.width * 2;
         at += 32 * kLine) {
      prefetch_global_l2(from + at);
    }
  }
}

// Eight bf16 of one k-block's word j of one lane, in its order of operands.
__device__ __forceinline__ uint4 lane_order(const uint4& natural) {
  return {__byte_perm(natural.x, natural.z, 0x5410),
          __byte_perm(natural.x, natural.z, 0x7632),
          __byte_perm(natural.y, natural.w, 0x5410),
          __byte_perm(natural.y, natural.w, 0x7632)};
}

// Live rows of x, or of the shared expert's h, into shared memory in lane order,
// zero-padded, by the threads from `first` on. Ends without a barrier.
template <typename Block>
__device__ __forceinline__ void stage_rows(const Block& block,
                                           const uint16_t* data,
                                           uint64_t stride, uint32_t k,
                                           uint32_t first = 0) {
  // Rows whose loads are under way at a time.
  constexpr uint32_t kTogether = 4;
  const moep_rows& rows = block.args.route.rows;
  const uint32_t end = moep_rows_end(&rows), pieces = moep_padded_k(k) / 8;
#pragma unroll 1
  for (uint32_t row = rows.begin; row < end; row += kTogether) {
    const uint16_t* x = data + row * stride;
    uint8_t* out = block.xs + (row - rows.begin) * moep_group_x_pitch(k);
#pragma unroll 1
    for (uint32_t i = threadIdx.x - first; i < pieces;
         i += blockDim.x - first) {
      uint4 natural[kTogether];
#pragma unroll
      for (uint32_t j = 0; j < kTogether; j++) {
        natural[j] = make_uint4(0, 0, 0, 0);
        if (i * 8 >= k || row + j >= end) continue;
        natural[j] = *reinterpret_cast<const uint4*>(x + j * stride + i * 8);
      }
      // Bits of i: (block, t, j); the place has (block, j, t).
      const uint32_t place = (i & ~15u) | (i & 3) << 2 | (i >> 2 & 3);
#pragma unroll
      for (uint32_t j = 0; j < kTogether; j++) {
        if (row + j >= end) break;
        *reinterpret_cast<uint4*>(out + j * moep_group_x_pitch(k) +
                                  place * 16) = lane_order(natural[j]);
      }
    }
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUP_WORK_CUH_
