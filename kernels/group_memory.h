/* Shared memory of one block of the group kernel: what the kernel lays out and
 * what the planner counts with. */

#ifndef MOEPLAN_KERNELS_GROUP_MEMORY_H_
#define MOEPLAN_KERNELS_GROUP_MEMORY_H_

#include "kernels/kset.h"

enum {
  MOEP_GROUP_FIXED_BYTES = 9 * 1024, /* routing, entries, counters */
  MOEP_GROUP_STAGE_BYTES = 4608,
  MOEP_GROUP_ALIGNMENT = 256,     /* of the rings: a row of a stage */
  MOEP_GROUP_PARTIAL_BYTES = 512, /* a tile's sums over one segment */
  MOEP_GROUP_ROW_PAD = 64,        /* behind each row of x */
  MOEP_GROUP_MIN_PARTIALS = 16,
  MOEP_GROUP_MIN_WARPS = 8,
  MOEP_GROUP_MAX_WARPS = 16,
  MOEP_GROUP_STAGES = 2, /* of a warp's ring */
};

/* Bytes of a row of x: two rows of a quarter warp are in different banks. */
MOEP_INLINE uint32_t moep_group_x_pitch(uint32_t hidden) {
  return moep_padded_k(hidden) * 2 + MOEP_GROUP_ROW_PAD;
}

/* 16 columns of y before the combine: bf16 of each slot, float32 of each row. */
MOEP_INLINE uint32_t moep_group_tile_bytes(uint32_t rows, uint32_t topk) {
  return rows * (topk * 32 + 64);
}

/* The rows of x; when they are done with, the shared expert's rows of h and tiles
 * of y, at least one. */
MOEP_INLINE uint32_t moep_group_x_bytes(uint32_t hidden, uint32_t width,
                                        uint32_t rows, uint32_t topk) {
  const uint32_t x = rows * moep_group_x_pitch(hidden);
  const uint32_t down =
      rows * moep_group_x_pitch(width) + moep_group_tile_bytes(rows, topk);
  return moep_round_up(x < down ? down : x, MOEP_GROUP_ALIGNMENT);
}

/* Partial sums that a block keeps: of one tile of router rows, at least. */
MOEP_INLINE uint32_t moep_group_partials(uint32_t hidden) {
  const uint32_t least = MOEP_GROUP_MIN_PARTIALS;
  const uint32_t segments = moep_ceil_div(hidden, MOEP_ROUTER_SEGMENT_K);
  return segments < least ? least : segments;
}

/* All but the rings. */
MOEP_INLINE uint32_t moep_group_base_bytes(uint32_t hidden, uint32_t width,
                                           uint32_t rows, uint32_t topk) {
  return MOEP_GROUP_FIXED_BYTES + moep_group_x_bytes(hidden, width, rows, topk);
}

MOEP_INLINE uint32_t moep_group_warp_bytes(void) {
  return MOEP_GROUP_STAGES * MOEP_GROUP_STAGE_BYTES;
}

/* What must fit beside it: in the first pass partial sums and a warp's ring; the
 * rings of all warps; and, while nothing is in them, a score and a key for each
 * row and expert. */
MOEP_INLINE uint32_t moep_group_least_bytes(uint32_t hidden, uint32_t width,
                                            uint32_t rows, uint32_t topk,
                                            uint32_t experts) {
  const uint32_t rings = MOEP_GROUP_MIN_WARPS * moep_group_warp_bytes();
  const uint32_t scores = rows * experts * 8;
  const uint32_t first = moep_group_warp_bytes() +
                         moep_group_partials(hidden) * MOEP_GROUP_PARTIAL_BYTES;
  const uint32_t most = rings < scores ? scores : rings;
  return moep_group_base_bytes(hidden, width, rows, topk) +
         (most < first ? first : most);
}

/* Warps of a block that has so many bytes beside the base. One more than a
 * multiple of four, the SM's schedulers, would make one of them the last. */
MOEP_INLINE uint32_t moep_group_warps(uint32_t bytes) {
  const uint32_t most = MOEP_GROUP_MAX_WARPS;
  const uint32_t fit = bytes / moep_group_warp_bytes();
  const uint32_t warps = fit - (fit % 4 == 1 ? 1 : 0);
  return warps < most ? warps : most;
}

/* What a block takes beside the base: for the rings of all warps and, if it can
 * have them, the first pass's partial sums; what is left is L1. */
MOEP_INLINE uint32_t moep_group_rest_bytes(uint32_t hidden, uint32_t rows,
                                           uint32_t experts, uint32_t bytes) {
  const uint32_t rings = moep_group_warps(bytes) * moep_group_warp_bytes();
  const uint32_t first =
      rings + moep_group_partials(hidden) * MOEP_GROUP_PARTIAL_BYTES;
  const uint32_t scores = rows * experts * 8;
  const uint32_t most = first < scores ? scores : first;
  return most < bytes ? most : bytes;
}

/* Those of them that work in the first pass, beside the partial sums. */
MOEP_INLINE uint32_t moep_group_front_warps(uint32_t hidden, uint32_t bytes) {
  const uint32_t left =
      bytes - moep_group_partials(hidden) * MOEP_GROUP_PARTIAL_BYTES;
  const uint32_t most = MOEP_GROUP_MAX_WARPS;
  const uint32_t warps = left / moep_group_warp_bytes();
  return warps < most ? warps : most;
}

#endif /* MOEPLAN_KERNELS_GROUP_MEMORY_H_ */
