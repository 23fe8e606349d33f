/* Which k form a tensor-core step, and in which order the steps run: the part
 * of the contract on bits that tiles and grids may not touch.
 *
 * NVFP4. K is padded with zeros to a multiple of 128. Within a block of 128 the
 * bits of k are (t1 t0 j1 j0 b h c): lane t of a quad holds 16 bytes, word j,
 * nibble 4b + 2h + c. It goes to position p with bits (j1 j0 h c t1 t0 b); step
 * s takes p = 16 s .. 16 s + 15. So the nibble pairs (i, i + 4) of one word are
 * the halves of one operand register, and no weight moves between lanes.
 *
 * bf16. Natural: step s takes k = 16 s .. 16 s + 15.
 *
 * Segments. The chain of steps is cut every 2048 k (512 for the router). Each
 * segment starts from +0; segments are added in ascending order in float32,
 * round to nearest. */

#ifndef MOEPLAN_KERNELS_KSET_H_
#define MOEPLAN_KERNELS_KSET_H_

#include "kernels/portable.h"

enum {
  MOEP_STEP_K = 16,            /* k of one tensor-core step */
  MOEP_BLOCK_K = 128,          /* k of one p-order block */
  MOEP_SEGMENT_K = 2048,       /* k of one chain */
  MOEP_ROUTER_SEGMENT_K = 512, /* the same for the router */
};

/* Position of k in p order, and back. Both keep k's block of 128. */
MOEP_INLINE uint32_t moep_p_from_k(uint32_t k) {
  const uint32_t t = (k >> 5) & 3, j = (k >> 3) & 3;
  const uint32_t b = (k >> 2) & 1, h = (k >> 1) & 1, c = k & 1;
  return (k & ~127u) | j << 5 | h << 4 | c << 3 | t << 1 | b;
}

MOEP_INLINE uint32_t moep_k_from_p(uint32_t p) {
  const uint32_t j = (p >> 5) & 3, h = (p >> 4) & 1, c = (p >> 3) & 1;
  const uint32_t t = (p >> 1) & 3, b = p & 1;
  return (p & ~127u) | t << 5 | j << 3 | b << 2 | h << 1 | c;
}

/* Width of a row stored in p order. */
MOEP_INLINE uint32_t moep_padded_k(uint32_t k) {
  return moep_round_up(k, MOEP_BLOCK_K);
}

#endif /* MOEPLAN_KERNELS_KSET_H_ */
