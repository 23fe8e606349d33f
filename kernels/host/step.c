#include "kernels/host/step.h"

#include <stdbool.h>

#include "kernels/kset.h"
#include "kernels/scalar.h"

/* Measured on an H200; sm_80, 89, 100 and 120 have other widths, not known. */
const struct moep_step_model moep_step_sm90 = {90, 25, -133};

enum {
  PRODUCT_FRACTION_BITS = 14,
  FLOAT_FRACTION_BITS = 23,
  NO_EXPONENT = -100000, /* of a zero: below every real one */
};

/* (-1)^negative x significand x 2^exponent, the significand not normalised. */
struct term {
  int64_t significand;
  int32_t exponent;
};

/* A number of either format, from its float32 bits: subnormals have exponent 1
 * and no hidden bit. */
static struct term term_from_bits(uint32_t bits) {
  const uint32_t field = (bits >> 23) & 255;
  const int64_t fraction = bits & 0x7FFFFF;
  const int64_t significand = field == 0 ? fraction : fraction | 0x800000;
  return (struct term){
      .significand = (bits >> 31) != 0 ? -significand : significand,
      .exponent = significand == 0 ? NO_EXPONENT
                                   : (field == 0 ? 1 : (int32_t)field) - 127,
  };
}

/* Toward zero, whatever the sign. */
static int64_t shift_right(int64_t value, int32_t count) {
  if (count > 62) return 0;
  return value < 0 ? -(-value >> count) : value >> count;
}

/* sum x 2^(exponent - fraction_bits), truncated toward zero to float32. */
static float float_from_sum(int64_t sum, int32_t exponent,
                            int32_t fraction_bits) {
  if (sum == 0) return 0.0f;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  uint64_t magnitude = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
  const int32_t top = 63 - __builtin_clzll(magnitude);
  int32_t field = top + exponent - fraction_bits + 127;
  if (field >= 255) return moep_float_from_bits(sign | 0x7F800000u);
  /* Bits to drop so that the hidden bit (or, subnormal, 2^-149) lands right. */
  int32_t drop = top - FLOAT_FRACTION_BITS;
  if (field < 1) {
    drop += 1 - field;
    field = 0;
  }
  if (drop > 63) return 0.0f;
  magnitude = drop >= 0 ? magnitude >> drop : magnitude << -drop;
  if (magnitude == 0) return 0.0f; /* below 2^-149: +0, whatever its sign */
  return moep_float_from_bits(sign | (uint32_t)field << 23 |
                              ((uint32_t)magnitude & 0x7FFFFF));
}

/* NaN and infinities, by their own rules. Returns false if all is finite. */
static bool step_special(const uint16_t* a, const uint16_t* b, float c,
                         float* d_out) {
  bool nan = c != c, any = false;
  uint32_t seen = 0; /* bit 0: +inf, bit 1: -inf */
  const uint32_t c_bits = moep_float_bits(c);
  if ((c_bits & 0x7FFFFFFFu) == 0x7F800000u) seen |= 1u << (c_bits >> 31);
  for (int i = 0; i < MOEP_STEP_K; i++) {
    const uint32_t x = a[i] & 0x7FFFu, y = b[i] & 0x7FFFu;
    if (x < 0x7F80u && y < 0x7F80u) continue;
    any = true;
    nan |= x > 0x7F80u || y > 0x7F80u || x == 0 || y == 0;
    seen |= 1u << ((a[i] ^ b[i]) >> 15);
  }
  if (!any && !nan && seen == 0) return false;
  const uint32_t bits = nan || seen == 3 ? MOEP_NAN_BITS
                        : seen == 1      ? 0x7F800000u
                                         : 0xFF800000u;
  *d_out = moep_float_from_bits(bits);
  return true;
}

float moep_step(const struct moep_step_model* model, const uint16_t* a,
                const uint16_t* b, float c) {
  float special;
  if (step_special(a, b, c, &special)) return special;

  struct term terms[MOEP_STEP_K];
  const struct term start = term_from_bits(moep_float_bits(c));
  int32_t largest = start.exponent > model->least_exponent
                        ? start.exponent
                        : model->least_exponent;
  for (int i = 0; i < MOEP_STEP_K; i++) {
    /* bf16 bits are the upper half of float32 bits: 7 of 23 fraction bits. */
    const struct term x = term_from_bits((uint32_t)a[i] << 16);
    const struct term y = term_from_bits((uint32_t)b[i] << 16);
    terms[i].significand = (x.significand / 65536) * (y.significand / 65536);
    terms[i].exponent =
        terms[i].significand == 0 ? NO_EXPONENT : x.exponent + y.exponent;
    if (terms[i].exponent > largest) largest = terms[i].exponent;
  }

  const int32_t bits = (int32_t)model->fraction_bits;
  int64_t sum =
      shift_right(start.significand * (1 << (bits - FLOAT_FRACTION_BITS)),
                  largest - start.exponent);
  for (int i = 0; i < MOEP_STEP_K; i++) {
    sum += shift_right(
        terms[i].significand * (1 << (bits - PRODUCT_FRACTION_BITS)),
        largest - terms[i].exponent);
  }
  return float_from_sum(sum, largest, bits);
}
