// What the group kernel does with finished tiles: logits, h, columns of y.

#ifndef MOEPLAN_KERNELS_GROUP_STORE_CUH_
#define MOEPLAN_KERNELS_GROUP_STORE_CUH_

#include "kernels/group_work.cuh"
#include "kernels/scalar.h"

namespace moep {

// Place of column i in a row of h.
__device__ __forceinline__ uint32_t h_place(uint32_t i) {
  const uint32_t p = moep_p_from_k(i);
  return lane_order_word(p / 2) * 2 + p % 2;
}

__device__ __forceinline__ bool alive(const moep_group_args& args, uint32_t r) {
  return args.route.rows.begin + r < moep_rows_end(&args.route.rows);
}

template <typename Block>
__device__ __forceinline__ void store_logits(const Block& block, uint32_t tile,
                                             const float (&sum)[4]) {
  const moep_group_args& args = block.args;
  const Share share = share_of(block, kLogits);
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  if (g >= 2) return;
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t r = lane % 4 * 2 + i % 2;
    const uint32_t e = share.first + tile * kLogitsTile + g + i / 2 * 2;
    if (!alive(args, r) || e >= share.last) continue;
    const uint64_t at =
        uint64_t{args.route.rows.begin + r} * args.route.rule.experts + e;
    args.route.logits[at] = sum[i];
    if (args.tap.logits != nullptr) args.tap.logits[at] = sum[i];
  }
}

// h = bf16(swiglu(bf16(gate), bf16(up), limit)), of the shared expert and of the
// routed ones.
template <typename Block>
__device__ __forceinline__ void store_h(const Block& block, const Phase& phase,
                                        uint32_t tile, const float (&sum)[4]) {
  const moep_group_args& args = block.args;
  const GroupShared& shared = block.shared;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const bool routed = Block::kBare || phase.kind == kExpertUp;
  float gate_scale = 1.0f, up_scale = 1.0f;
  const int32_t* slots = nullptr;
  uint32_t column = (share_of(block, kFfnUp).first + tile) * kFfnUpTile + g;
  if (routed) {
    const Place place = place_of(block, phase, tile);
    const Entry& entry = shared.entry[place.entry];
    gate_scale = entry.epilogue[kGate];
    up_scale = entry.epilogue[kUp];
    slots = shared.route.slot + entry.index * MOEP_UNION_ROWS;
    column = place.row + g;
  } else if (g >= kFfnUpTile) {
    return;
  }
#pragma unroll 1
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t r = lane % 4 * 2 + i;
    const float gate = i == 0 ? sum[0] : sum[1];
    const float up = i == 0 ? sum[2] : sum[3];
    uint64_t row = args.route.rows.begin + r;
    uint16_t* h = args.ffn_h + row * args.width + column;
    float* tap = args.tap.ffn_up;
    uint32_t width = args.width;
    if (routed) {
      if (slots[r] < 0) continue;
      row = slot_of(args, r, slots[r]);
      h = args.h + row * moep_padded_k(args.inter) + h_place(column);
      tap = args.tap.expert_up;
      width = args.inter;
    } else if (!alive(args, r)) {
      continue;
    }
    *h = moep_bf16_from_float(moep_swiglu(moep_bf16_round(gate * gate_scale),
                                          moep_bf16_round(up * up_scale),
                                          args.limit));
    if (Block::kBare || tap == nullptr) continue;
    tap[row * 2 * width + column] = gate;
    tap[(row * 2 + 1) * width + column] = up;
  }
}

// Zeros of h between inter and its padded width.
template <typename Block>
__device__ __forceinline__ void pad_h(const Block& block) {
  const moep_group_args& args = block.args;
  const uint32_t padded = moep_padded_k(args.inter);
  if (padded == args.inter) return;
  for (uint32_t i = blockIdx.x; i < block.shared.entries * MOEP_UNION_ROWS;
       i += gridDim.x) {
    const uint32_t u = block.shared.entry[i / MOEP_UNION_ROWS].index;
    const uint32_t r = i % MOEP_UNION_ROWS;
    const int32_t j = block.shared.route.slot[u * MOEP_UNION_ROWS + r];
    if (j < 0) continue;
    uint16_t* h = args.h + slot_of(args, r, j) * padded;
    for (uint32_t k = args.inter + threadIdx.x; k < padded; k += blockDim.x) {
      h[h_place(k)] = 0;
    }
  }
}

// Where a chunk's columns wait for the combine: bf16 [tiles, slots, 16], then
// float32 [tiles, rows, 16] of the shared expert.
struct Columns {
  uint16_t* slots;
  float* ffn;
  uint32_t slot_count;
};

template <typename Block>
__device__ __forceinline__ Columns columns_of(const Block& block) {
  const moep_route_args& route = block.args.route;
  const uint32_t slots = route.rows.count * route.rule.topk;
  uint16_t* begin = reinterpret_cast<uint16_t*>(
      block.xs + route.rows.count * moep_group_x_pitch(block.args.width));
  return {begin,
          reinterpret_cast<float*>(begin +
                                   block.shape.chunk.value * slots * kDownTile),
          slots};
}

// 4 columns of the shared expert.
template <typename Block>
__device__ __forceinline__ void store_ffn_down(const Block& block,
                                               const Phase& phase,
                                               uint32_t tile,
                                               const float (&sum)[4]) {
  const moep_group_args& args = block.args;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t rows = args.route.rows.count;
  const Columns columns = columns_of(block);
  if (g >= 2) return;
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t r = lane % 4 * 2 + i % 2;
    const uint32_t column = tile * kFfnDownTile + g + i / 2 * 2;  // of chunk
    if (!alive(args, r)) continue;
    columns
        .ffn[(column / kDownTile * rows + r) * kDownTile + column % kDownTile] =
        sum[i];
    if (args.tap.ffn_down == nullptr) continue;
    args.tap.ffn_down[uint64_t{args.route.rows.begin + r} * args.hidden +
                      phase.first * kDownTile + column] = sum[i];
  }
}

// 16 columns of a routed expert, rounded.
template <typename Block>
__device__ __forceinline__ void store_down(const Block& block,
                                           const Phase& phase, uint32_t tile,
                                           const float (&sum)[4]) {
  const moep_group_args& args = block.args;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const Columns columns = columns_of(block);
  const Place place = place_of(block, phase, tile);
  const Entry& entry = block.shared.entry[place.entry];
  const int32_t* slots =
      block.shared.route.slot + entry.index * MOEP_UNION_ROWS;
  const uint32_t at = place.row / kDownTile - phase.first;
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t r = lane % 4 * 2 + i % 2, column = g + i / 2 * 8;
    const int32_t j = slots[r];
    if (j < 0) continue;
    const uint32_t slot = r * args.route.rule.topk + static_cast<uint32_t>(j);
    columns.slots[(at * columns.slot_count + slot) * kDownTile + column] =
        moep_bf16_from_float(sum[i] * entry.epilogue[kDown]);
    if (Block::kBare || args.tap.expert_down == nullptr) continue;
    args.tap
        .expert_down[slot_of(args, r, j) * args.hidden + place.row + column] =
        sum[i];
  }
}

template <typename Block>
__device__ __forceinline__ void store_tile(const Block& block,
                                           const Phase& phase, uint32_t tile,
                                           const float (&sum)[4]) {
  if (Block::kBare) {
    return phase.kind == kExpertDown ? store_down(block, phase, tile, sum)
                                     : store_h(block, phase, tile, sum);
  }
  switch (phase.kind) {
    case kLogits:
      return store_logits(block, tile, sum);
    case kFfnDown:
      return store_ffn_down(block, phase, tile, sum);
    case kExpertDown:
      return store_down(block, phase, tile, sum);
    default:
      return store_h(block, phase, tile, sum);
  }
}

// y of a chunk's columns, from its slots.
template <typename Block>
__device__ __forceinline__ void combine(const Block& block,
                                        const Phase& phase) {
  const moep_group_args& args = block.args;
  const moep_rows& rows = args.route.rows;
  const Columns columns = columns_of(block);
  const uint32_t topk = args.route.rule.topk;
  const uint32_t alive_rows = moep_rows_alive(&rows);
  const uint32_t width = phase.down_tiles * kDownTile;
  for (uint32_t i = threadIdx.x; i < alive_rows * width; i += blockDim.x) {
    const uint32_t r = small_quotient(i, width), at = i - r * width;
    const uint32_t tile = at / kDownTile, column = at % kDownTile;
    const uint16_t* slots =
        columns.slots + tile * columns.slot_count * kDownTile + column;
    float sum = 0.0f;
#pragma unroll 1
    for (uint32_t slot = r * topk; slot < (r + 1) * topk; slot++) {
      if (block.shared.here[slot] == 0) continue;
      sum = moep_fma(block.shared.route.weights[slot],
                     moep_bf16_to_float(slots[slot * kDownTile]), sum);
    }
    if (!Block::kBare && args.width != 0) {
      sum = __fadd_rn(
          sum, columns.ffn[(tile * rows.count + r) * kDownTile + column]);
    }
    const uint64_t to =
        (rows.begin + r) * args.y.stride + phase.first * kDownTile + at;
    if (args.y.is_f32 != 0) {
      static_cast<float*>(args.y.data)[to] = moep_f32_stored(sum);
    } else {
      static_cast<uint16_t*>(args.y.data)[to] = moep_bf16_from_float(sum);
    }
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUP_STORE_CUH_
