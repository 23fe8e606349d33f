/* Eight E2M1 weights of one word as four pairs of bf16, with integer operations
 * only. */

#ifndef MOEPLAN_KERNELS_UNPACK_H_
#define MOEPLAN_KERNELS_UNPACK_H_

#include "kernels/portable.h"

/* Nibbles i (low half) and i + 4 (high half) as bf16 of E2M1 x 2^-126: the sign
 * at bit 15, exponent and mantissa at bits 8..6, E2M1's subnormal a bf16 one.
 * Each multiplication adds a copy shifted to bits 15..12 and one to 9..6, which
 * do not meet. 13 operations for a word. */
struct moep_e2m1_pairs {
  uint32_t pair[4];
};

MOEP_INLINE struct moep_e2m1_pairs moep_unpack_e2m1(uint32_t word) {
  const uint32_t high = word >> 8;
  const struct moep_e2m1_pairs pairs = {
      {((word & 0x000F000Fu) * 4160u) & 0x81C081C0u,
       ((word & 0x00F000F0u) * 260u) & 0x81C081C0u,
       ((high & 0x000F000Fu) * 4160u) & 0x81C081C0u,
       ((high & 0x00F000F0u) * 260u) & 0x81C081C0u}};
  return pairs;
}

/* Two E4M3 codes (bits 6..0 and 22..16) as bf16 of E4M3 x 2^-120, subnormals
 * included. */
MOEP_INLINE uint32_t moep_unpack_e4m3(uint32_t codes) { return codes << 4; }

#endif /* MOEPLAN_KERNELS_UNPACK_H_ */
