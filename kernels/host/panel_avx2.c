/* The panel in vectors of 8 weight rows, exact in double precision.
 *
 * Every term of a step, and every truncated sum of terms, is a double without
 * rounding: products have 16 significant bits, scaled terms are integers below
 * 2^27, a sum of 17 stays below 2^32. So a step is: the largest exponent (in
 * int32 lanes), one multiply by 2^(25 - largest) and one rounding toward zero
 * per term, exact additions, and a mask that cuts the sum to 24 bits. What the
 * mask would get wrong (infinite, NaN and subnormal results, operands that are
 * not finite) is flagged and left to the portable version. */

#include "kernels/host/panel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/host/step.h"
#include "kernels/scalar.h"

#define AVX2 __attribute__((target("avx2"))) static inline

enum { ZERO_EXPONENT = -100000 }; /* of a zero operand */

/* 128 operands of 8 weight rows, in step order. */
struct weights {
  double value[MOEP_BLOCK_K][MOEP_PANEL_N];
  int32_t exponent[MOEP_BLOCK_K][MOEP_PANEL_N];
};

/* 128 activations of one row, in step order. */
struct activations {
  double value[MOEP_BLOCK_K];
  int32_t exponent[MOEP_BLOCK_K];
};

/* One row's accumulators. */
struct sums {
  __m256d low, high; /* weight rows 0..3, 4..7 */
  __m256i exponents; /* of their float32 forms */
  __m256i bad;       /* lanes that the portable version must redo */
};

AVX2 __m256d to_double_low(__m256 v) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}

AVX2 __m256d to_double_high(__m256 v) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

/* Exponents as the step counts them: subnormals 1, zeros far below. */
AVX2 __m256i exponents_of(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i magnitude =
      _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i field = _mm256_srli_epi32(magnitude, 23);
  const __m256i exponent = _mm256_sub_epi32(
      _mm256_max_epi32(field, _mm256_set1_epi32(1)), _mm256_set1_epi32(127));
  const __m256i zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
  return _mm256_blendv_epi8(exponent, _mm256_set1_epi32(ZERO_EXPONENT), zero);
}

AVX2 __m256i not_finite(__m256 v) {
  const __m256i magnitude =
      _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7FFFFFFF));
  return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F7FFFFF));
}

AVX2 void store_weights(struct weights* w, uint32_t position, __m256 v) {
  _mm256_storeu_pd(&w->value[position][0], to_double_low(v));
  _mm256_storeu_pd(&w->value[position][4], to_double_high(v));
  _mm256_storeu_si256((__m256i*)w->exponent[position], exponents_of(v));
}

/* Row offsets of the panel's 8 rows; rows past n repeat the last one. */
AVX2 __m256i row_offsets(const struct moep_operand* a, uint32_t n0,
                         uint64_t pitch_bytes) {
  const uint32_t last = a->n - 1 - n0;
  const __m256i lane =
      _mm256_min_epu32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                       _mm256_set1_epi32((int32_t)last));
  return _mm256_mullo_epi32(lane, _mm256_set1_epi32((int32_t)pitch_bytes));
}

/* Block scales with their bias, [8 groups of 16 k][8 rows]. */
AVX2 void load_scales(const struct moep_operand* a, uint32_t n0, uint32_t k0,
                      const float* decoded, float scales[8][MOEP_PANEL_N]) {
  const uint64_t pitch = a->k / 16;
  for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
    const uint32_t n = n0 + i < a->n ? n0 + i : a->n - 1;
    const uint8_t* row = a->scale + n * pitch + k0 / 16;
    for (uint32_t g = 0; g < 8; g++) {
      scales[g][i] = k0 + 16 * g < a->k ? decoded[row[g] & 127u] : 0.0f;
    }
  }
}

AVX2 void load_nvfp4(const struct moep_operand* a, uint32_t n0, uint32_t k0,
                     const float* decoded, struct weights* w) {
  const __m256 magnitudes =
      _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign_bit = _mm256_set1_epi32((int32_t)0x80000000u);
  const __m256i offsets = row_offsets(a, n0, a->pitch_bytes);
  const uint8_t* base = a->weight + n0 * a->pitch_bytes + k0 / 2;
  float scales[8][MOEP_PANEL_N];
  load_scales(a, n0, k0, decoded, scales);
  for (uint32_t word = 0; word < 16; word++) {
    const uint32_t t = word >> 2, j = word & 3;
    __m256i codes = _mm256_setzero_si256();
    if (k0 + 8 * word < a->k) {
      codes = _mm256_i32gather_epi32(
          (const int*)(const void*)(base + (size_t)4 * word), offsets, 1);
    }
    const __m256 scale = _mm256_loadu_ps(scales[word >> 1]);
    for (uint32_t i = 0; i < 8; i++) {
      const __m256i code = _mm256_srli_epi32(codes, (int)(4 * i));
      const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, code);
      const __m256 sign = _mm256_castsi256_ps(
          _mm256_and_si256(_mm256_slli_epi32(code, 28), sign_bit));
      const uint32_t b = i >> 2, h = (i >> 1) & 1, c = i & 1;
      store_weights(w, j << 5 | h << 4 | c << 3 | t << 1 | b,
                    _mm256_xor_ps(_mm256_mul_ps(magnitude, scale), sign));
    }
  }
}

/* Returns lanes that hold something not finite. */
AVX2 __m256i load_bf16(const struct moep_operand* a, uint32_t n0, uint32_t k0,
                       struct weights* w) {
  const __m256i offsets = row_offsets(a, n0, a->pitch_bytes);
  const uint8_t* base = a->weight + n0 * a->pitch_bytes + 2 * (uint64_t)k0;
  __m256i bad = _mm256_setzero_si256();
  for (uint32_t k = 0; k < MOEP_BLOCK_K; k += 2) {
    __m256i pair = _mm256_setzero_si256();
    if (k0 + k < a->k) {
      pair = _mm256_i32gather_epi32(
          (const int*)(const void*)(base + (size_t)2 * k), offsets, 1);
    }
    const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
    const __m256 odd = _mm256_castsi256_ps(
        _mm256_and_si256(pair, _mm256_set1_epi32((int32_t)0xFFFF0000u)));
    store_weights(w, k, even);
    store_weights(w, k + 1, odd);
    bad = _mm256_or_si256(bad,
                          _mm256_or_si256(not_finite(even), not_finite(odd)));
  }
  return bad;
}

/* Returns nonzero if something is not finite. */
AVX2 int load_activations(const uint16_t* staged, struct activations* x) {
  __m256i bad = _mm256_setzero_si256();
  for (uint32_t i = 0; i < MOEP_BLOCK_K; i += 8) {
    const __m128i half =
        _mm_loadu_si128((const __m128i*)(const void*)(staged + i));
    const __m256 v =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    _mm256_storeu_pd(x->value + i, to_double_low(v));
    _mm256_storeu_pd(x->value + i + 4, to_double_high(v));
    _mm256_storeu_si256((__m256i*)(void*)(x->exponent + i), exponents_of(v));
    bad = _mm256_or_si256(bad, not_finite(v));
  }
  return _mm256_movemask_epi8(bad);
}

/* 2^exponent. */
AVX2 __m256d power_of_two(__m128i exponent) {
  const __m256i wide = _mm256_cvtepi32_epi64(exponent);
  return _mm256_castsi256_pd(
      _mm256_slli_epi64(_mm256_add_epi64(wide, _mm256_set1_epi64x(1023)), 52));
}

AVX2 __m256d truncated_term(__m256d term, __m256d scale) {
  return _mm256_round_pd(_mm256_mul_pd(term, scale),
                         _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

/* Half of the lanes of one step: 4 weight rows. */
AVX2 __m256d step_half(__m256d sum, const double* w, const double* x,
                       __m128i up, __m128i down) {
  const __m256d scale = power_of_two(up);
  __m256d total = truncated_term(sum, scale);
  for (uint32_t i = 0; i < MOEP_STEP_K; i++) {
    const __m256d product =
        _mm256_mul_pd(_mm256_loadu_pd(w + (size_t)i * MOEP_PANEL_N),
                      _mm256_broadcast_sd(x + i));
    total = _mm256_add_pd(total, truncated_term(product, scale));
  }
  const __m256d cut =
      _mm256_castsi256_pd(_mm256_set1_epi64x((int64_t)0xFFFFFFFFE0000000u));
  return _mm256_and_pd(_mm256_mul_pd(total, power_of_two(down)), cut);
}

/* Lanes whose value a float32 cannot hold as a normal number or zero. */
AVX2 __m256d out_of_range(__m256d v) {
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), v);
  const __m256d small = _mm256_and_pd(
      _mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p-126), _CMP_LT_OQ),
      _mm256_cmp_pd(magnitude, _mm256_setzero_pd(), _CMP_NEQ_OQ));
  return _mm256_or_pd(
      small, _mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p128), _CMP_GE_OQ));
}

AVX2 __m256 sums_as_float(const struct sums* s) {
  return _mm256_set_m128(_mm256_cvtpd_ps(s->high), _mm256_cvtpd_ps(s->low));
}

AVX2 void step(struct sums* s, const struct weights* w,
               const struct activations* x, uint32_t at) {
  __m256i largest = _mm256_max_epi32(
      s->exponents, _mm256_set1_epi32(moep_step_sm90.least_exponent));
  for (uint32_t i = at; i < at + MOEP_STEP_K; i++) {
    const __m256i we =
        _mm256_loadu_si256((const __m256i*)(const void*)w->exponent[i]);
    largest = _mm256_max_epi32(
        largest, _mm256_add_epi32(we, _mm256_set1_epi32(x->exponent[i])));
  }
  const __m256i bits = _mm256_set1_epi32((int32_t)moep_step_sm90.fraction_bits);
  const __m256i up = _mm256_sub_epi32(bits, largest);
  const __m256i down = _mm256_sub_epi32(largest, bits);
  s->low = step_half(s->low, &w->value[at][0], x->value + at,
                     _mm256_castsi256_si128(up), _mm256_castsi256_si128(down));
  s->high = step_half(s->high, &w->value[at][4], x->value + at,
                      _mm256_extracti128_si256(up, 1),
                      _mm256_extracti128_si256(down, 1));
  s->exponents = exponents_of(sums_as_float(s));
  s->bad = _mm256_or_si256(
      s->bad, _mm256_castpd_si256(
                  _mm256_or_pd(out_of_range(s->low), out_of_range(s->high))));
}

AVX2 void start_segment(struct sums* s) {
  s->low = s->high = _mm256_setzero_pd();
  s->exponents = _mm256_set1_epi32(ZERO_EXPONENT);
}

AVX2 uint32_t panel(const struct moep_operand* a, uint32_t n0,
                    const uint16_t* const* x, uint32_t rows,
                    enum moep_order order, float totals[][MOEP_PANEL_N]) {
  const int permute = a->scale != NULL && order == moep_order_natural;
  const uint32_t x_end = order == moep_order_p ? moep_padded_k(a->k) : a->k;
  float decoded[128];
  if (a->scale != NULL) {
    for (uint32_t code = 0; code < 128; code++) {
      decoded[code] = moep_block_scale(code);
    }
  }
  struct sums sums[MOEP_PANEL_ROWS];
  uint32_t bad = 0;
  for (uint32_t r = 0; r < rows; r++) {
    start_segment(&sums[r]);
    sums[r].bad = _mm256_setzero_si256();
  }
  for (uint32_t k0 = 0; k0 < a->k; k0 += MOEP_BLOCK_K) {
    struct weights w;
    if (a->scale != NULL) {
      load_nvfp4(a, n0, k0, decoded, &w);
    } else if (_mm256_movemask_epi8(load_bf16(a, n0, k0, &w)) != 0) {
      return ~0u;
    }
    const uint32_t next = k0 + MOEP_BLOCK_K;
    const int ends = next % a->segment_k == 0 || next >= a->k;
    for (uint32_t r = 0; r < rows; r++) {
      uint16_t staged[MOEP_BLOCK_K];
      struct activations activations;
      moep_panel_stage(x[r], k0, x_end, permute, staged);
      if (load_activations(staged, &activations) != 0) bad |= 1u << r;
      for (uint32_t i = 0; i < MOEP_BLOCK_K; i += MOEP_STEP_K) {
        step(&sums[r], &w, &activations, i);
      }
      if (!ends) continue;
      const __m256 segment = sums_as_float(&sums[r]);
      const __m256 total =
          next <= a->segment_k
              ? segment
              : _mm256_add_ps(_mm256_loadu_ps(totals[r]), segment);
      _mm256_storeu_ps(totals[r], total);
      start_segment(&sums[r]);
    }
  }
  for (uint32_t r = 0; r < rows; r++) {
    if (_mm256_movemask_epi8(sums[r].bad) != 0) bad |= 1u << r;
  }
  return bad;
}

/* The target attribute must not reach the caller's frame. */
__attribute__((target("avx2"), noinline)) static uint32_t panel_entry(
    const struct moep_operand* a, uint32_t n0, const uint16_t* const* x,
    uint32_t rows, enum moep_order order, float totals[][MOEP_PANEL_N]) {
  return panel(a, n0, x, rows, order, totals);
}

uint32_t moep_panel_avx2(const struct moep_operand* a, uint32_t n0,
                         const uint16_t* const* x, uint32_t rows,
                         enum moep_order order, float totals[][MOEP_PANEL_N]) {
  if (!__builtin_cpu_supports("avx2")) return ~0u;
  /* Gathers take 32-bit offsets between the panel's rows. */
  if (a->pitch_bytes > INT32_MAX / (MOEP_PANEL_N - 1)) return ~0u;
  return panel_entry(a, n0, x, rows, order, totals);
}

#else

uint32_t moep_panel_avx2(const struct moep_operand* a, uint32_t n0,
                         const uint16_t* const* x, uint32_t rows,
                         enum moep_order order, float totals[][MOEP_PANEL_N]) {
  (void)a, (void)n0, (void)x, (void)rows, (void)order, (void)totals;
  return ~0u;
}

#endif
