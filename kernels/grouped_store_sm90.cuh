// Where a warpgroup's totals of a unit go: h for the up projections, a slot's output
// for down. Rounded results are gathered in the warpgroup's region and leave in rows.

#ifndef MOEPLAN_KERNELS_GROUPED_STORE_SM90_CUH_
#define MOEPLAN_KERNELS_GROUPED_STORE_SM90_CUH_

#include "kernels/grouped_tile_sm90.cuh"
#include "kernels/swiglu.cuh"
#include "kernels/tma_sm90.cuh"

namespace moep {

// Bytes of a token's results of down in the region. Their 16-byte chunk c lies at chunk
// c ^ (token & 7), so that those of eight tokens are in different banks.
template <int kM>
constexpr uint32_t kDownPitch = kM * 128;

// Eights of tokens of which SwiGLU is taken at once: two, where the compiler has
// registers for them.
template <int kN>
constexpr int kEightsTogether = kN == 8 || kN == 96 ? 1 : 2;

struct Lane {
  uint32_t warpgroup, warp, row, t;
  __device__ __forceinline__ Lane()
      : warpgroup(consumer_group()),
        warp(threadIdx.x % kGroupThreads / 32),
        row(lane_row()),
        t(threadIdx.x % 4) {}
};

__device__ __forceinline__ uint64_t slot_of(const moep_grouped_args& args,
                                            const GroupedWork& unit,
                                            uint32_t token) {
  return static_cast<uint32_t>(args.sorted_slots[unit.position + token]);
}

// A column of gate and up, two tokens of each, as a lane holds them in acc.
struct UpPair {
  float gate[2], up[2];
};

__device__ __forceinline__ void tap_up(const moep_grouped_args& args,
                                       const GroupedWork& unit, uint32_t column,
                                       uint32_t token, const UpPair& pair) {
  if (column >= args.inter) return;
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    if (token + i >= unit.tokens) continue;
    float* tap = args.tap.expert_up +
                 slot_of(args, unit, token + i) * 2 * args.inter + column;
    tap[0] = pair.gate[i];
    tap[args.inter] = pair.up[i];
  }
}

// A warpgroup's columns of h of the tokens of eights from .. to, in p order in the
// region, 64 kM bytes a token. `totals` is where those of eight 0 would lie. Results take
// the place of totals that all warps have read.
template <int kN, int kTile>
__device__ __forceinline__ void gather_up(const moep_grouped_args& args,
                                          const GroupedWork& unit,
                                          uint32_t region, uint32_t totals,
                                          uint32_t from, uint32_t to) {
  constexpr int kM = Shape<kTile>::kM, kTogether = kEightsTogether<kN>;
  constexpr int kPairs = kTogether * kM;
  const Lane lane;
  const moep_expert& expert = args.site->experts[unit.expert];
  const float gate_scale = expert.gate.epilogue, up_scale = expert.up.epilogue;
  const uint32_t column0 =
      first_row<true, kTile>(unit.tile) +
      row_after<true, kTile>(tile_row<true, kTile>(0) + lane.row);
  const uint32_t own = totals + threadIdx.x % kGroupThreads * 16;
#pragma unroll 1
  for (uint32_t i = from; i < to; i += kTogether) {
    float gate[2 * kPairs], up[2 * kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; j++) {
      const uint32_t eight = i + j / kM, m = j % kM;
      const float4 v =
          ld_shared_v4_f32(own + (m * (kN / 8) + eight) * kGroupThreads * 16);
      const UpPair pair = {{v.x, v.y}, {v.z, v.w}};
      if (args.tap.expert_up != nullptr) {
        tap_up(args, unit, column0 + m * 8, eight * 8 + lane.t * 2, pair);
      }
#pragma unroll
      for (int c = 0; c < 2; c++) {
        gate[2 * j + c] = moep_bf16_round(__fmul_rn(pair.gate[c], gate_scale));
        up[2 * j + c] = moep_bf16_round(__fmul_rn(pair.up[c], up_scale));
      }
    }
    uint32_t words[kPairs];
    swiglu_bf16<2 * kPairs>(gate, up, args.limit, words);
    barrier_sync(1 + lane.warpgroup, kGroupThreads);
    const uint32_t p = moep_p_from_k(lane.warp * 32 + lane.row % 4);
#pragma unroll
    for (int j = 0; j < kPairs; j++) {
      const uint32_t eight = i + j / kM, m = j % kM;
      const uint32_t mine = column0 + m * 8 < args.inter ? words[j] : 0;
      // Rows r and r ^ 4, lanes 12 apart (^), are neighbours in p order: of the pair,
      // one lane takes the first token, the other the second.
      const uint32_t other = __shfl_xor_sync(~0u, mine, 12);
      const uint32_t token = eight * 8 + lane.t * 2 + lane.row / 4;
      st_shared_u32(region + token * (kM * 64) + m * 64 + p * 2,
                    lane.row < 4 ? __byte_perm(mine, other, 0x5410)
                                 : __byte_perm(other, mine, 0x7632));
    }
  }
}

// The code of the loop over eights runs once a unit, so it is short: totals go through
// the region, as many as fit at a time.
template <int kN, int kTile>
__device__ __forceinline__ void store_up(
    const moep_grouped_args& args, const GroupedWork& unit, uint32_t region,
    float (&acc)[Shape<kTile>::kM][kN / 2]) {
  constexpr int kM = Shape<kTile>::kM, kEights = kN / 8;
  constexpr int kThere = kRegionFours<kTile> / kM;
  constexpr int kPass = kThere < kEights ? kThere / 2 * 2 : kEights;
  static_assert(2 * kPass >= kEights && (kM == 1 || kPass == kEights),
                "one pass or two");
  const Lane lane;
  const uint32_t eights = moep_ceil_div(unit.tokens, 8);
#pragma unroll 1
  for (uint32_t first = 0; first < kEights; first += kPass) {
    // Behind the results of the pass before.
    const uint32_t totals = region + first * 8 * kM * 64;
    if (first == 0) {
      each_four<kN, kM, 0, kPass * kM>(totals, acc, store_four);
    } else {
      each_four<kN, kM, kPass * kM, kEights * kM>(totals, acc, store_four);
    }
    gather_up<kN, kTile>(
        args, unit, region, totals - first * kGroupThreads * 16, first,
        kPass == kEights ? eights : min(eights, first + kPass));
  }
  barrier_sync(1 + lane.warpgroup, kGroupThreads);
  // The warpgroup's columns are kM * 32 positions of p order from here on.
  const uint32_t p0 =
      unit.tile * kMatrixRows<true, kTile> + lane.warpgroup * kM * 32;
  const uint32_t row0 = unit.position - args.expert_offsets[unit.expert];
  constexpr uint32_t kChunks = kM * 4;
  for (uint32_t i = threadIdx.x % kGroupThreads; i < unit.tokens * kChunks;
       i += kGroupThreads) {
    const uint32_t token = i / kChunks, chunk = i % kChunks;
    *reinterpret_cast<uint4*>(args.h +
                              moep_tile_place(args.slots, unit.position + token,
                                              row0 + token, p0 + chunk * 8)) =
        ld_shared_v4(region + i * 16);
  }
  barrier_sync(1 + lane.warpgroup, kGroupThreads);
}

template <int kN, int kM>
__device__ __forceinline__ void tap_down(const moep_grouped_args& args,
                                         const GroupedWork& unit,
                                         uint32_t column0,
                                         const float (&acc)[kM][kN / 2]) {
  const Lane lane;
  const uint32_t column = column0 + lane.warp * 16 + lane.row;
#pragma unroll
  for (int i = 0; i < kN / 4; i++) {
    const uint32_t token = i / 2 * 8 + lane.t * 2 + i % 2;
    if (token >= unit.tokens) continue;
    float* tap = args.tap.expert_down +
                 slot_of(args, unit, token) * args.hidden + column;
#pragma unroll
    for (int m = 0; m < kM; m++) {
      if (column + m * 64 >= args.hidden) continue;
      tap[m * 64] = acc[m][i / 2 * 4 + i % 2];
      tap[m * 64 + 8] = acc[m][i / 2 * 4 + i % 2 + 2];
    }
  }
}

template <int kN, int kTile>
__device__ __forceinline__ void store_down(
    const moep_grouped_args& args, const GroupedWork& unit, uint32_t region,
    float (&acc)[Shape<kTile>::kM][kN / 2]) {
  constexpr int kM = Shape<kTile>::kM;
  const Lane lane;
  const float scale = args.site->experts[unit.expert].down.epilogue;
  const uint32_t column0 =
      unit.tile * Shape<kTile>::kRows + lane.warpgroup * kM * 64;
  const uint32_t own = region + lane.t * 2 * kDownPitch<kM> +
                       (lane.warp ^ lane.t) * 32 + lane.row * 2;
  if (args.tap.expert_down != nullptr) {
    tap_down<kN, kM>(args, unit, column0, acc);
  }
  barrier_sync(1 + lane.warpgroup, kGroupThreads);  // all sums are read
#pragma unroll
  for (int m = 0; m < kM; m++) {
#pragma unroll
    for (int i = 0; i < kN / 2; i++) {
      st_shared_u16(own + m * 128 + (i % 4 / 2 ^ i % 2) * 16 +
                        (i / 4 * 8 + i % 2) * kDownPitch<kM>,
                    moep_bf16_from_float(__fmul_rn(acc[m][i], scale)));
    }
  }
  barrier_sync(1 + lane.warpgroup, kGroupThreads);
  constexpr uint32_t kChunks = kM * 8;
  for (uint32_t i = threadIdx.x % kGroupThreads; i < unit.tokens * kChunks;
       i += kGroupThreads) {
    const uint32_t token = i / kChunks, chunk = i % kChunks;
    if (column0 + chunk * 8 >= args.hidden) continue;
    const uint32_t place = token * kDownPitch<kM> + (chunk ^ token % 8) * 16;
    *reinterpret_cast<uint4*>(
        args.slot_out + uint64_t{unit.position + token} * args.hidden +
        column0 + chunk * 8) = ld_shared_v4(region + place);
  }
  barrier_sync(1 + lane.warpgroup, kGroupThreads);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_STORE_SM90_CUH_
