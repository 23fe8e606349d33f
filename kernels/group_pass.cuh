// A pass of a warp over its units: the weights it copies run ahead of those it
// computes with, over the ends of units and phases.

#ifndef MOEPLAN_KERNELS_GROUP_PASS_CUH_
#define MOEPLAN_KERNELS_GROUP_PASS_CUH_

#include "kernels/group_store.cuh"

namespace moep {

constexpr uint32_t kNoUnit = 1u << 30;  // past all

// What a warp copies next.
struct Cursor {
  Source source;
  uint32_t unit;   // of the pass
  uint32_t begin;  // the phase's first unit
  uint32_t phase;
};

// The unit that cursor.unit names, or the first of this warp's after it that
// goes through the ring.
template <typename Block>
__device__ __forceinline__ void open_unit(const Block& block, uint32_t end,
                                          uint32_t warps, Cursor& cursor) {
  cursor.source.left = 0;
  while (cursor.phase < end) {
    const Phase phase = phase_at(block, cursor.phase);
    if (cursor.unit >= cursor.begin + phase.units()) {
      cursor.begin += phase.units();
      cursor.phase++;
    } else if (Block::kRing || is_bf16<Block>(phase)) {
      const Unit unit = unit_at(phase, cursor.unit - cursor.begin);
      cursor.source = source_of<Block::kBare>(rows_of(block, phase, unit));
      return;
    } else {
      cursor.unit += warps;
    }
  }
}

// A warp's ring.
struct Ring {
  uint32_t begin;
  uint32_t stage;  // the next one to use

  __device__ void advance() { stage = 2 * begin + kStageBytes - stage; }
};

// A stage of whatever the source is, if there is any; one group in any case.
template <typename Block>
__device__ __forceinline__ void copy_stage(Source& source, uint32_t stage,
                                           uint32_t target, bool copies) {
  if (copies) {
    if (Block::kBare || source.bf16_rows == 0) {
      nv_copy<Block::kBare>(source, stage, target);
    } else {
      bf_copy(source, stage);
    }
  }
  cp_async_commit_group();
}

// What a warp multiplies its weights with.
struct Operand {
  const uint8_t* x;  // this lane's, at the k to use next; has: there is one
  bool has;
  uint32_t left;     // k of the unit still to use
  NvOperands ahead;  // of the next block, NVFP4
};

// Half a stage of NVFP4 weights, its first block in `block`; then there is the other
// half's, which is next in the first half and of no use in the second. words, codes: this
// lane's places in the half; then in the other.
__device__ __forceinline__ void run_half(uint32_t& words, uint32_t& codes,
                                         NvBlock& block, Operand& operand,
                                         float (&acc)[4]) {
  const NvBlock second = nv_ring_block(words, codes, 1);
  operand.left -= kHalfK;
  const bool more = operand.has && operand.left != 0;
  nv_block(block, acc, operand.ahead, [&](int j, uint4& word) {
    ld_v4_if(word, operand.x + 256 + j * 64, operand.has);
  });
  words ^= kHalfK / 2;
  codes ^= kHalfK / 16;
  block = nv_ring_block(words, codes, 0);
  operand.x += 512;
  nv_block(second, acc, operand.ahead, [&](int j, uint4& word) {
    ld_v4_if(word, operand.x + j * 64, more);
  });
}

// The loop that counts: stages of NVFP4 over k, each replaced by the source's
// next.
template <typename Block>
__device__ __forceinline__ void run_nv(uint32_t k, Ring& ring, Source& source,
                                       bool copies, Operand& operand,
                                       float (&acc)[4]) {
  const uint32_t target = nv_target();
#pragma unroll 1
  while (k != 0) {
    const uint32_t length = Block::kBare ? kStageK : min(k, kStageK);
    k -= length;
    cp_async_wait_group<kStages - 1>();
    __syncwarp();
    uint32_t words = ring.stage + nv_words(), codes = ring.stage + nv_codes();
    NvBlock block = nv_ring_block(words, codes, 0);
#pragma unroll 1
    for (uint32_t at = 0; at < length; at += kHalfK) {
      run_half(words, codes, block, operand, acc);
    }
    __syncwarp();
    copy_stage<Block>(source, ring.stage, target, copies);
    ring.advance();
  }
}

// The same of bf16; k: of the stages, the last one may be short.
template <typename Block>
__device__ __forceinline__ void run_bf(uint32_t k, Ring& ring, Source& source,
                                       bool copies, Operand& operand,
                                       float (&acc)[4]) {
#pragma unroll 1
  while (k != 0) {
    const uint32_t length = min(k, kStageK);
    cp_async_wait_group<kStages - 1>();
    __syncwarp();
    bf_stage(ring.stage, length / MOEP_STEP_K, shared_address(operand.x), acc);
    operand.x += kStageK * 2;
    __syncwarp();
    copy_stage<Block>(source, ring.stage, nv_target(), copies);
    ring.advance();
    k -= length;
  }
}

// Segments are added in ascending order.
__device__ __forceinline__ void add_segment(bool first, float (&acc)[4],
                                            float (&total)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    total[i] = first ? acc[i] : __fadd_rn(total[i], acc[i]);
    acc[i] = 0.0f;
  }
}

// An NVFP4 unit of any k, block by block without the ring.
__device__ __forceinline__ void run_direct(const TileRows& rows,
                                           Operand& operand,
                                           float (&total)[4]) {
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const uint32_t scales = rows.pitch / 8;
  NvRows lane = {
      {rows.low + g * rows.pitch + t * 16, rows.high + g * rows.pitch + t * 16},
      {rows.low_scale + g * scales + t * 2,
       rows.high_scale + g * scales + t * 2}};
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
  for (uint32_t k = 0; k < rows.k;) {
    NvBlock block;
    nv_load(lane, rows.k - k, rows.k % 32 == 0, block);
    k += MOEP_BLOCK_K;
    operand.x += MOEP_BLOCK_K * 2;
    const bool more = operand.has && k < rows.k;
    nv_block(block, acc, operand.ahead, [&](int j, uint4& word) {
      if (more) {
        word = *reinterpret_cast<const uint4*>(operand.x + j * 64);
      }
    });
    if (k % MOEP_SEGMENT_K != 0 && k < rows.k) continue;
    add_segment(k <= MOEP_SEGMENT_K, acc, total);
  }
}

// One unit's sum.
template <typename Block>
__device__ __forceinline__ void run_unit(const Block& block, uint32_t end,
                                         uint32_t warps, const Phase& phase,
                                         uint32_t index, Ring& ring,
                                         Cursor& cursor, float (&total)[4]) {
  const Unit unit = unit_at(phase, index);
  Operand operand = {};
  operand.x = operand_of(block, phase, unit);
  operand.has = operand.x != nullptr;
  operand.left = unit.length;
  if (!is_bf16<Block>(phase) && operand.has) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      operand.ahead.word[j] =
          *reinterpret_cast<const uint4*>(operand.x + j * 64);
    }
  }
  if (!Block::kRing && !is_bf16<Block>(phase)) {
    run_direct(rows_of(block, phase, unit), operand, total);
    return;
  }
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  uint32_t left = unit.length, segment = min(left, uint32_t{MOEP_SEGMENT_K});
  bool first = true;
#pragma unroll 1
  while (left != 0) {
    // As far as neither the chain nor the source ends.
    const bool copies = cursor.source.left != 0;
    uint32_t k = segment;
    if (copies) {
      k = min(k, moep_round_up(cursor.source.left, kStageK));
    }
    left -= k;
    segment -= k;
    if (is_bf16<Block>(phase)) {
      run_bf<Block>(k, ring, cursor.source, copies, operand, acc);
    } else {
      run_nv<Block>(k, ring, cursor.source, copies, operand, acc);
    }
    if (copies && cursor.source.left == 0) {
      cursor.unit += warps;
      open_unit(block, end, warps, cursor);
    }
    if (segment != 0) continue;
    add_segment(first, acc, total);
    first = false;
    segment = min(left, uint32_t{MOEP_SEGMENT_K});
  }
  if (is_bf16<Block>(phase)) bf_pair_rows(total);
}

// A pass of a warp over the phases `first` .. `end`: the cursor runs over their units and
// copies, the rest follows and computes.
struct Pass {
  uint32_t first, end;
  uint32_t warps;
  Ring ring;
  Cursor cursor;
};

// With the first weights on their way.
template <typename Block>
__device__ __forceinline__ Pass open_pass(const Block& block, uint32_t first,
                                          uint32_t end) {
  const uint32_t ring =
      shared_address(block.rings) + warp_of_block() * kStages * kStageBytes;
  Pass pass = {};
  pass.first = first;
  pass.end = end;
  pass.warps =
      !Block::kBare && first < kExpertUp ? block.front_warps : warps_of_block();
  pass.ring = {ring, ring};
  Cursor& cursor = pass.cursor;
  cursor.unit = warp_of_block() < pass.warps ? warp_of_block() : kNoUnit;
  cursor.phase = first;
  open_unit(block, end, pass.warps, cursor);
#pragma unroll 1
  for (uint32_t i = 0; i < kStages; i++) {
    const bool copies = cursor.source.left != 0;
    copy_stage<Block>(cursor.source, pass.ring.stage, nv_target(), copies);
    pass.ring.advance();
    if (copies && cursor.source.left == 0) {
      cursor.unit += pass.warps;
      open_unit(block, end, pass.warps, cursor);
    }
  }
  return pass;
}

// after(phase) is called by all threads.
template <typename Block, typename After>
__device__ __forceinline__ void run_pass(const Block& block, Pass& pass,
                                         After after) {
  const uint32_t end = pass.end, warps = pass.warps;
  uint32_t index = warp_of_block() < warps ? warp_of_block() : kNoUnit;
  uint32_t begin = 0;
#pragma unroll 1
  for (uint32_t p = pass.first; p < end; p++) {
    const uint32_t units = phase_at(block, p).units();
#pragma unroll 1
    for (; index < begin + units; index += warps) {
      float total[4];
      run_unit(block, end, warps, phase_at(block, p), index - begin, pass.ring,
               pass.cursor, total);
      // Found anew: what stays known takes registers from the loops over k.
      uint32_t same = p, in_phase = index - begin;
      forget(same);
      forget(in_phase);
      const Phase phase = phase_at(block, same);
      const Unit unit = unit_at(phase, in_phase);
      if (Block::kBare || deliver(block, phase.kind, unit.tile, unit.segment,
                                  phase.segments, total)) {
        store_tile(block, phase, unit.tile, total);
      }
    }
    begin += units;
    after(phase_at(block, p));
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUP_PASS_CUH_
