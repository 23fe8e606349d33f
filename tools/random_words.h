/* Pseudo-random words that are valid weights or activations, the same on the host
 * and on a GPU: word `index` of a kind is a hash of the index. */

#ifndef MOEPLAN_TOOLS_RANDOM_WORDS_H_
#define MOEPLAN_TOOLS_RANDOM_WORDS_H_

#include <stdint.h>

#ifdef __CUDACC__
#define TOOL_HOST_DEVICE __host__ __device__
#else
#define TOOL_HOST_DEVICE
#endif

enum tool_words {
  tool_words_e2m1,        /* 8 codes: every one is a number */
  tool_words_e4m3,        /* 4 scales, 0.5 to 1.875 */
  tool_words_bf16_weight, /* 2, either sign, 2^-9 to 2^-5; rms 1 / 75 */
  tool_words_bf16_x,      /* 2, either sign, 2^-3 to 2; rms 0.85 */
};

/* splitmix64 */
static inline TOOL_HOST_DEVICE uint64_t tool_random_mix(uint64_t index) {
  uint64_t bits = (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
  bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
  return bits ^ (bits >> 31);
}

static inline TOOL_HOST_DEVICE uint32_t tool_random_word(enum tool_words kind,
                                                         uint64_t index) {
  const uint32_t bits = (uint32_t)(tool_random_mix(index) >> 32);
  switch (kind) {
    case tool_words_e2m1:
      return bits;
    case tool_words_e4m3: /* exponents 6 and 7, any mantissa */
      return (bits & UINT32_C(0x0F0F0F0F)) + UINT32_C(0x30303030);
    case tool_words_bf16_weight: /* sign, 2 bits of exponent, mantissa */
      return (bits & UINT32_C(0x81FF81FF)) + UINT32_C(0x3B003B00);
    case tool_words_bf16_x:
      return (bits & UINT32_C(0x81FF81FF)) + UINT32_C(0x3E003E00);
  }
  return 0;
}

#endif /* MOEPLAN_TOOLS_RANDOM_WORDS_H_ */
