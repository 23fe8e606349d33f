/* What host C and device CUDA need to compile one source to the same bits:
 * a function qualifier, the fused multiply-add, and bit casts. Every other
 * operation is a plain one, compiled without contraction on both sides. */

#ifndef MOEPLAN_KERNELS_PORTABLE_H_
#define MOEPLAN_KERNELS_PORTABLE_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define MOEP_INLINE static __host__ __device__ __forceinline__
#else
#define MOEP_INLINE static inline
#endif

/* a * b + c, rounded once. */
MOEP_INLINE float moep_fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return fmaf(a, b, c);
#endif
}

MOEP_INLINE float moep_float_from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

MOEP_INLINE uint32_t moep_float_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

MOEP_INLINE uint32_t moep_ceil_div(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}

/* a rounded up to a multiple of b. */
MOEP_INLINE uint32_t moep_round_up(uint32_t a, uint32_t b) {
  return moep_ceil_div(a, b) * b;
}

#endif /* MOEPLAN_KERNELS_PORTABLE_H_ */
