/* Tile order: how activations lie for the grouped kernel of sm_90, so that one copy
 * of `tokens` x 128 bytes brings a tile as wgmma reads it. [K / 64, S, 64] bf16: blocks
 * of 64 positions of p order, in each the rows of all sorted slots, 128 bytes each,
 * whose 16-byte chunk c lies at chunk c ^ (row & 7); rows are counted from the
 * expert's first. */

#ifndef MOEPLAN_KERNELS_TILE_ORDER_H_
#define MOEPLAN_KERNELS_TILE_ORDER_H_

#include "kernels/portable.h"

enum { MOEP_TILE_K = 64, MOEP_TILE_ROW_BYTES = 2 * MOEP_TILE_K };

/* Where position p of a slot lies: in the block that begins at moep_tile_block
 * elements, its chunk c at chunk moep_tile_slot ^ c. The slot is sorted to `position`;
 * `row` of its expert. */
MOEP_INLINE uint64_t moep_tile_block(uint32_t slots, uint32_t p) {
  return (uint64_t)(p / MOEP_TILE_K) * slots * MOEP_TILE_K;
}
MOEP_INLINE uint32_t moep_tile_slot(uint32_t position, uint32_t row) {
  return position * (MOEP_TILE_K / 8) + (row & 7);
}

/* The element itself. */
MOEP_INLINE uint64_t moep_tile_place(uint32_t slots, uint32_t position,
                                     uint32_t row, uint32_t p) {
  const uint32_t chunk = moep_tile_slot(position, row) ^ p % MOEP_TILE_K / 8;
  return moep_tile_block(slots, p) + (uint64_t)chunk * 8 + p % 8;
}

#endif /* MOEPLAN_KERNELS_TILE_ORDER_H_ */
