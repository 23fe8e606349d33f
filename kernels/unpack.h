/* Eight E2M1 weights of one word as four pairs of bf16, with integer operations
 * only. */

#ifndef MOEPLAN_KERNELS_UNPACK_H_
#define MOEPLAN_KERNELS_UNPACK_H_

#include "kernels/portable.h"

/* Nibbles i (low half) and i + 4 (high half) as bf16 of E2M1 x 2^-126: the sign
 * at bit 15, exponent and mantissa at bits 8..6, E2M1's subnormal a bf16 one.
 * The signs of two neighbouring nibbles and their exponents and mantissas,
 * shifted by 6 to the right of them, do not meet: one word takes both pairs there.
 * 11 operations for a word, 4 of them shifts to the left, which GPUs can do as
 * multiplications beside the logic. */
struct moep_e2m1_pairs {
  uint32_t pair[4];
};

/* Bits 15 and 11 of both halves. In kernels a product with the grid's depth, 1, which
 * the compiler does not know: from a known mask it makes 13 operations of the 11. */
MOEP_INLINE uint32_t moep_e2m1_signs(void) {
#if defined(__CUDA_ARCH__)
  return 0x88008800u * gridDim.z;
#else
  return 0x88008800u;
#endif
}

MOEP_INLINE uint32_t moep_join_e2m1(uint32_t signs, uint32_t rest) {
  const uint32_t mask = moep_e2m1_signs();
  return (signs & mask) | (rest & ~mask);
}

MOEP_INLINE struct moep_e2m1_pairs moep_unpack_e2m1(uint32_t word) {
  const uint32_t low = moep_join_e2m1(word << 8, word << 2);
  const uint32_t high = moep_join_e2m1(word, word >> 6);
  const struct moep_e2m1_pairs pairs = {
      {(low << 4) & 0x81C081C0u, low & 0x81C081C0u, (high << 4) & 0x81C081C0u,
       high & 0x81C081C0u}};
  return pairs;
}

/* Two E4M3 codes (bits 6..0 and 22..16) as bf16 of E4M3 x 2^-120, subnormals
 * included. */
MOEP_INLINE uint32_t moep_unpack_e4m3(uint32_t codes) { return codes << 4; }

#endif /* MOEPLAN_KERNELS_UNPACK_H_ */
