/* The scalar arithmetic of the contract, one source for host and device: bf16
 * rounding, NVFP4 decoding, exp, sigmoid, silu, the clamp. float32 throughout,
 * each operation as written; the only fused operations are moep_fma calls. */

#ifndef MOEPLAN_KERNELS_SCALAR_H_
#define MOEPLAN_KERNELS_SCALAR_H_

#include "kernels/portable.h"

#define MOEP_NAN_BITS 0x7FFFFFFFu
#define MOEP_BF16_NAN_BITS 0x7FFFu

/* ---- bf16 ---------------------------------------------------------------- */

MOEP_INLINE float moep_bf16_to_float(uint16_t bits) {
  return moep_float_from_bits((uint32_t)bits << 16);
}

/* Nearest even; every NaN becomes 0x7FFF. */
MOEP_INLINE uint16_t moep_bf16_from_float(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  const uint32_t bits = moep_float_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return MOEP_BF16_NAN_BITS;
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
#endif
}

MOEP_INLINE float moep_bf16_round(float value) {
  return moep_bf16_to_float(moep_bf16_from_float(value));
}

/* A float32 as it is stored: every NaN becomes 0x7FFFFFFF. */
MOEP_INLINE float moep_f32_stored(float value) {
  return value == value ? value : moep_float_from_bits(MOEP_NAN_BITS);
}

/* ---- NVFP4 --------------------------------------------------------------- */

/* The operand is E2M1 x E4M3 x 2^-26, exact in bf16 (at most 6 significant
 * bits, 2^-36 .. 2688 x 2^-26), in every path. The epilogue gives the 2^26
 * back with weight_scale_2: one round-to-nearest multiply. */
#define MOEP_OPERAND_BIAS 26

/* E2M1 code 0..15: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
MOEP_INLINE float moep_e2m1_to_float(uint32_t code) {
  const uint32_t exponent = (code >> 1) & 3, mantissa = code & 1;
  const float magnitude =
      exponent == 0
          ? 0.5f * (float)mantissa
          : moep_float_from_bits((exponent + 126) << 23 | mantissa << 22);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

/* E4M3 code 0..126 (positive and finite, subnormals included). */
MOEP_INLINE float moep_e4m3_to_float(uint32_t code) {
  const uint32_t exponent = (code >> 3) & 15, mantissa = code & 7;
  return exponent == 0
             ? (float)mantissa * 0x1p-9f
             : moep_float_from_bits((exponent + 120) << 23 | mantissa << 20);
}

/* The block scale with the operand's bias, exact. */
MOEP_INLINE float moep_block_scale(uint32_t e4m3) {
  return moep_e4m3_to_float(e4m3) * 0x1p-26f;
}

/* What the epilogue multiplies by: exact, also for a subnormal scale when the
 * caller has denormals-are-zero set. */
MOEP_INLINE float moep_epilogue_scale(float weight_scale_2) {
  const uint32_t bits = moep_float_bits(weight_scale_2);
  if (bits < 0x00800000u) return (float)bits * 0x1p-123f;
  return weight_scale_2 * 0x1p26f;
}

/* ---- exp, sigmoid, silu, clamp ------------------------------------------- */

/* e^x within about an ulp. n = round(x / ln 2), r = x - n ln 2 in two steps,
 * Taylor's polynomial to r^7 (|r| <= 0.3466, relative error below 2^-27), then
 * 2^n as two exact factors, so that subnormal results round once. */
MOEP_INLINE float moep_exp(float x) {
  if (x != x) return moep_float_from_bits(MOEP_NAN_BITS);
  if (x > 89.0f) return moep_float_from_bits(0x7F800000u);
  if (x < -104.0f) return 0.0f;
  const float shifter = 0x1.8p23f;
  const float n = moep_fma(x, 0x1.715476p0f, shifter) - shifter;
  float r = moep_fma(n, -0x1.62e4p-1f, x);
  r = moep_fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;           /* 1/5040 */
  p = moep_fma(p, r, 0x1.6c16c2p-10f); /* 1/720 */
  p = moep_fma(p, r, 0x1.111112p-7f);  /* 1/120 */
  p = moep_fma(p, r, 0x1.555556p-5f);  /* 1/24 */
  p = moep_fma(p, r, 0x1.555556p-3f);  /* 1/6 */
  p = moep_fma(p, r, 0.5f);
  p = moep_fma(p, r, 1.0f);
  p = moep_fma(p, r, 1.0f);
  const int32_t whole = (int32_t)n, half = whole / 2;
  const float low = moep_float_from_bits((uint32_t)(half + 127) << 23);
  const float high = moep_float_from_bits((uint32_t)(whole - half + 127) << 23);
  return (p * low) * high;
}

MOEP_INLINE float moep_sigmoid(float x) { return 1.0f / (1.0f + moep_exp(-x)); }

MOEP_INLINE float moep_silu(float x) { return x / (1.0f + moep_exp(-x)); }

/* One element of h before its rounding. gate is clamped from above, up on both
 * sides; a NaN passes. `limit` is +infinity for none. */
MOEP_INLINE float moep_swiglu(float gate, float up, float limit) {
  const float g = gate > limit ? limit : gate;
  const float below = up > limit ? limit : up;
  const float u = below < -limit ? -limit : below;
  return moep_silu(g) * u;
}

#endif /* MOEPLAN_KERNELS_SCALAR_H_ */
