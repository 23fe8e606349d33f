/* The arithmetic that the contract on bits rests on, run on the GPU by kernels
 * of the tests alone, and the same on the host.
 *
 * A function maps an index to 32 bits. Its values over 2^20 indexes are hashed
 * into 64 bits, so that 2^32 inputs are compared by 4,096 numbers. */

#ifndef MOEPLAN_TESTS_CONTRACT_PROBE_H_
#define MOEPLAN_TESTS_CONTRACT_PROBE_H_

#include <cuda_runtime_api.h>

#include "kernels/scalar.h"
#include "kernels/unpack.h"
#if defined(__CUDACC__)
#include "kernels/quotient.cuh"
#include "kernels/swiglu.cuh"
#endif

#define MOEP_PROBE_BLOCK (1u << 20) /* indexes of one hash */

/* X(name, log2 of the number of indexes). */
#define MOEP_PROBE_MAP(X) \
  X(exp, 32)              \
  X(sigmoid, 32)          \
  X(bf16_from_float, 32)  \
  X(unpack_e2m1, 32)      \
  X(silu_of_bf16, 16)     \
  X(swiglu_of_bf16, 24)   \
  X(swiglu_of_four, 24)   \
  X(quotients, 28)        \
  X(add, 24)              \
  X(multiply, 24)         \
  X(divide, 24)           \
  X(fma, 24)

enum moep_probe {
#define MOEP_PROBE_ENUM(name, log2) moep_probe_##name,
  MOEP_PROBE_MAP(MOEP_PROBE_ENUM)
#undef MOEP_PROBE_ENUM
      MOEP_PROBE_COUNT
};

/* splitmix64's output function. */
MOEP_INLINE uint64_t moep_probe_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

/* What one value adds to its block's hash. */
MOEP_INLINE uint64_t moep_probe_term(uint64_t index, uint32_t value) {
  return moep_probe_mix((index + 1) * 0x9E3779B97F4A7C15ull + value);
}

struct moep_probe_operands {
  float a, b, c;
};

/* Every fourth index: any bits; all subnormal; exponents within 2^+-2 of each
 * other; quotients and products near the ends of the range. */
MOEP_INLINE struct moep_probe_operands moep_probe_pick(uint64_t index) {
  const uint64_t one = moep_probe_mix(index * 2 + 0x243F6A8885A308D3ull);
  const uint64_t two = moep_probe_mix(index * 2 + 0x13198A2E03707345ull);
  uint32_t a = (uint32_t)one, b = (uint32_t)(one >> 32), c = (uint32_t)two;
  const uint32_t spread = (uint32_t)(two >> 32);
  if (index % 4 == 1) {
    a &= 0x807FFFFFu;
    b &= 0x80FFFFFFu;
    c &= 0x807FFFFFu;
  } else if (index % 4 == 2) {
    a = (a & 0x807FFFFFu) | (125 + spread % 4) << 23;
    b = (b & 0x807FFFFFu) | (125 + spread / 4 % 4) << 23;
    c = (c & 0x807FFFFFu) | (125 + spread / 16 % 4) << 23;
  } else if (index % 4 == 3) {
    a = (a & 0x807FFFFFu) | (1 + spread % 160) << 23;
    b = (b & 0x807FFFFFu) | (1 + spread / 256 % 254) << 23;
    c = (c & 0x80FFFFFFu);
  }
  const struct moep_probe_operands operands = {moep_float_from_bits(a),
                                               moep_float_from_bits(b),
                                               moep_float_from_bits(c)};
  return operands;
}

/* Bits 0..15 gate, 16..21 the upper bits of up's exponent, 22..23 limit. */
MOEP_INLINE float moep_probe_up(uint32_t index) {
  const uint32_t pick = index >> 16 & 63;
  return moep_bf16_to_float((uint16_t)(pick * 1033u + 0x2D5Bu));
}
MOEP_INLINE float moep_probe_limit(uint32_t index) {
  const uint32_t which = index >> 22 & 3;
  return which == 0   ? moep_float_from_bits(0x7F800000u)
         : which == 1 ? 10.0f
         : which == 2 ? 2.0f
                      : 0.3f;
}

MOEP_INLINE uint32_t moep_probe_swiglu(uint32_t index) {
  const float gate = moep_bf16_to_float((uint16_t)index);
  return moep_float_bits(moep_f32_stored(
      moep_swiglu(gate, moep_probe_up(index), moep_probe_limit(index))));
}

/* Four gates at once, as kernels/swiglu.cuh has them on the GPU: often all of
 * them plain, often one not. */
MOEP_INLINE uint32_t moep_probe_four(uint32_t index) {
  const float limit = moep_probe_limit(index);
  float gate[4], up[4];
  uint32_t h[2];
  for (uint32_t i = 0; i < 4; i++) {
    gate[i] = moep_bf16_to_float((uint16_t)(index + i * 0x0391u));
    up[i] = moep_probe_up(index + (i << 16));
  }
#if defined(__CUDA_ARCH__)
  moep::swiglu_bf16(gate, up, limit, h);
#else
  for (uint32_t i = 0; i < 4; i += 2) {
    h[i / 2] = moep_bf16_from_float(moep_swiglu(gate[i], up[i], limit)) |
               (uint32_t)moep_bf16_from_float(
                   moep_swiglu(gate[i + 1], up[i + 1], limit))
                   << 16;
  }
#endif
  return (uint32_t)moep_probe_mix(h[0] | (uint64_t)h[1] << 32);
}

/* n / d of every n below 2^20, d 1..192 and multiples of 64 up to 4096, by both ways of
 * kernels/quotient.cuh. */
MOEP_INLINE uint32_t moep_probe_both_quotients(uint32_t index) {
  const uint32_t n = index & 0xFFFFFu, which = index >> 20;
  const uint32_t d = which < 192 ? which + 1 : (which - 191) * 64;
#if defined(__CUDA_ARCH__)
  const uint32_t few = moep::small_quotient(n, d);
  const uint32_t known = moep::quotient(n, moep::divisor_of(d));
#else
  const uint32_t few = n / d, known = few;
#endif
  return few + 3 * known;
}

/* The value at one index. Operations that hand a NaN's payload on give the
 * stored NaN. */
MOEP_INLINE uint32_t moep_probe_value(enum moep_probe probe, uint64_t index) {
  const uint32_t bits = (uint32_t)index;
  const float x = moep_float_from_bits(bits);
  const struct moep_probe_operands at = moep_probe_pick(index);
  float value = 0.0f;
  switch (probe) {
    case moep_probe_exp:
      return moep_float_bits(moep_exp(x));
    case moep_probe_bf16_from_float:
      return moep_bf16_from_float(x);
    case moep_probe_unpack_e2m1: {
      const struct moep_e2m1_pairs pairs = moep_unpack_e2m1(bits);
      return (uint32_t)(moep_probe_mix(pairs.pair[0] | (uint64_t)pairs.pair[1]
                                                           << 32) +
                        3 * moep_probe_mix(pairs.pair[2] |
                                           (uint64_t)pairs.pair[3] << 32));
    }
    case moep_probe_swiglu_of_bf16:
      return moep_probe_swiglu(bits);
    case moep_probe_swiglu_of_four:
      return moep_probe_four(bits);
    case moep_probe_quotients:
      return moep_probe_both_quotients(bits);
    case moep_probe_sigmoid:
      value = moep_sigmoid(x);
      break;
    case moep_probe_silu_of_bf16:
      value = moep_silu(moep_bf16_to_float((uint16_t)bits));
      break;
    case moep_probe_add:
      value = at.a + at.b;
      break;
    case moep_probe_multiply:
      value = at.a * at.b;
      break;
    case moep_probe_divide:
      value = at.a / at.b;
      break;
    case moep_probe_fma:
      value = moep_fma(at.a, at.b, at.c);
      break;
    case MOEP_PROBE_COUNT:
      break;
  }
  return moep_float_bits(moep_f32_stored(value));
}

#ifdef __cplusplus
extern "C" {
#endif

/* On the current device; each call waits for its result. */

/* Hashes of `blocks` blocks from first_block on, each over `indexes` (2^20 or
 * fewer) indexes. */
cudaError_t moep_probe_hash(enum moep_probe probe, uint32_t first_block,
                            uint32_t blocks, uint32_t indexes,
                            uint64_t* hashes_out);

/* The values at first .. first + count, to find one that differs. */
cudaError_t moep_probe_values(enum moep_probe probe, uint64_t first,
                              uint32_t count, uint32_t* values_out);

/* bf16 products of E2M1 code w and E4M3 code s, at [w][s]. */
struct moep_probe_product_table {
  uint16_t plain_mul[16][127];    /* E2M1 x (E4M3 x 2^-26), mul.bf16x2 */
  uint16_t plain_fma[16][127];    /* the same with fma.rn.bf16x2 and -0 */
  uint16_t unpacked_mul[16][127]; /* (E2M1 x 2^-126) x (E4M3 x 2^100) */
  uint16_t unpacked_fma[16]
                       [127]; /* from unpack.h, the scale by x 2^110 twice */
};

cudaError_t moep_probe_products(struct moep_probe_product_table* products_out);

/* The cache policy that copies take, and the one that createpolicy makes. */
cudaError_t moep_probe_policies(uint64_t policies_out[2]);

/* A record of cases/mma_step_sm90.bin: d = a . b + c. */
struct moep_probe_step {
  uint16_t a[16], b[16];
  float c, d;
};

/* Which k stand in which slots of one step: slot = k, or the order of
 * ring.cuh. */
enum moep_probe_order { moep_probe_natural = 0, moep_probe_ring = 1 };

/* Each step with its a in all 16 rows and its b in all 8 columns. */
cudaError_t moep_probe_steps(const struct moep_probe_step* steps,
                             uint32_t count, enum moep_probe_order order,
                             float* d_out /* [count, 16, 8] */);

/* A record of cases/mma_chain_sm90.bin. */
struct moep_probe_chain {
  uint16_t a[64][2048], b[8][2048];
  float d[64][8];
};

/* d = a b^T as 128 steps from +0, in ascending k. */
cudaError_t moep_probe_chains(const struct moep_probe_chain* chains,
                              uint32_t count, enum moep_probe_order order,
                              float* d_out /* [count, 64, 8] */);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEPLAN_TESTS_CONTRACT_PROBE_H_ */
