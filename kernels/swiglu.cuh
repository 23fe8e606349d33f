// SwiGLU of several elements at once: scalar.h's bits, without its branches where
// nothing is special, so that the elements' operations fill each other's waits.

#ifndef MOEPLAN_KERNELS_SWIGLU_CUH_
#define MOEPLAN_KERNELS_SWIGLU_CUH_

#include "kernels/ptx_sm80.cuh"
#include "kernels/scalar.h"

namespace moep {

// What fast_silu is for. Outside, an exponential, a quotient or a remainder may
// be subnormal or infinite, or the quotient's sign be that of a zero.
__device__ __forceinline__ bool silu_is_plain(float gate) {
  const float magnitude = fabsf(gate);
  return magnitude >= 0x1p-90f && magnitude <= 80.0f;
}

// moep_silu of a plain gate: e^-gate with 2^n added to the exponent, which is
// exact here, and the division rounded correctly by two remainders.
__device__ __forceinline__ float fast_silu(float gate) {
  const float shifter = 0x1.8p23f;
  const float shifted = __fmaf_rn(-gate, 0x1.715476p0f, shifter);
  const float n = shifted - shifter;
  float r = __fmaf_rn(n, -0x1.62e4p-1f, -gate);
  r = __fmaf_rn(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;
  p = __fmaf_rn(p, r, 0x1.6c16c2p-10f);
  p = __fmaf_rn(p, r, 0x1.111112p-7f);
  p = __fmaf_rn(p, r, 0x1.555556p-5f);
  p = __fmaf_rn(p, r, 0x1.555556p-3f);
  p = __fmaf_rn(p, r, 0.5f);
  p = __fmaf_rn(p, r, 1.0f);
  p = __fmaf_rn(p, r, 1.0f);
  const float e =
      __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
  const float d = 1.0f + e;
  float inverse = rcp_approx_ftz(d);
  inverse = __fmaf_rn(inverse, __fmaf_rn(-d, inverse, 1.0f), inverse);
  float q = gate * inverse;
  q = __fmaf_rn(inverse, __fmaf_rn(-d, q, gate), q);
  return __fmaf_rn(inverse, __fmaf_rn(-d, q, gate), q);
}

// bf16(swiglu) of kCount pairs, two to a word.
template <uint32_t kCount>
__device__ __forceinline__ void swiglu_bf16(const float (&gate)[kCount],
                                            const float (&up)[kCount],
                                            float limit,
                                            uint32_t (&h)[kCount / 2]) {
  float value[kCount];
  bool plain = true;
#pragma unroll
  for (uint32_t i = 0; i < kCount; i++) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float below = up[i] > limit ? limit : up[i];
    const float u = below < -limit ? -limit : below;
    plain = plain && silu_is_plain(g);
    value[i] = fast_silu(g) * u;
  }
  if (!plain) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; i++) {
      value[i] = moep_swiglu(gate[i], up[i], limit);
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < kCount; i += 2) {
    h[i / 2] = cvt_rn_bf16x2(value[i], value[i + 1]);
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_SWIGLU_CUH_
