#include "tools/bench_numerics_data.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "tools/bench_routing.h"
#include "tools/compare.h"
#include "tools/random_words.h"

enum {
  ROWS = TOOL_NUMERICS_ROWS,
  TOPK = TOOL_NUMERICS_TOPK,
  EXPERTS = TOOL_NUMERICS_EXPERTS,
  HIDDEN = TOOL_NUMERICS_HIDDEN,
  INTER = TOOL_NUMERICS_INTER,
  BLOCK = TOOL_NUMERICS_BLOCK,
  SLOTS = TOOL_NUMERICS_SLOTS,
  BF16_ONE = 0x3F80,
  E2M1_ONE = 2,
  E2M1_FOUR = 6,
  E4M3_ONE = 0x38,
  E4M3_EIGHT = 0x50,
};

static const double gate_value = 32.0; /* E2M1_FOUR x E4M3_EIGHT */

/* ---- inputs ---- */

static void draw_bytes(void* to, size_t bytes, enum tool_words kind,
                       uint64_t* word) {
  for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
    const uint32_t bits = tool_random_word(kind, *word);
    memcpy((char*)to + i, &bits, sizeof(bits));
    (*word)++;
  }
}

static void set_code(uint8_t* row, size_t k, unsigned code) {
  row[k / 2] = (uint8_t)(code << (k % 2 * 4));
}

static void draw_down(struct tool_numerics_data* data, uint64_t* word) {
  for (size_t e = 0; e < EXPERTS; e++) {
    draw_bytes(data->inputs.down[e].codes, sizeof(data->inputs.down[e].codes),
               tool_words_e2m1, word);
    draw_bytes(data->inputs.down[e].scale, sizeof(data->inputs.down[e].scale),
               tool_words_e4m3, word);
    /* From 2^-5 to 2^-4, any mantissa. */
    const uint64_t mantissa = tool_random_mix(*word) >> 41;
    data->down_scale_2[e] = (float)((UINT64_C(1) << 23) + mantissa) * 0x1p-28f;
    (*word)++;
  }
}

/* x, and gate and up, which make h of it. */
static void draw_h(struct tool_numerics_data* data, uint64_t* word) {
  struct tool_numerics_inputs* in = &data->inputs;
  draw_bytes(in->x, sizeof(in->x), tool_words_bf16_x, word);
  memset(in->gate.scale, E4M3_EIGHT, sizeof(in->gate.scale));
  memset(in->up.scale, E4M3_ONE, sizeof(in->up.scale));
  for (size_t i = 0; i < INTER; i++) {
    set_code(in->gate.codes[i], 0, E2M1_FOUR);
    set_code(in->up.codes[i], i % HIDDEN, E2M1_ONE);
  }
  for (size_t r = 0; r < ROWS; r++) {
    in->x[r][0] = BF16_ONE;
    for (size_t i = 0; i < INTER; i++) {
      data->h[r][i] =
          gate_value * (double)tool_bf16_to_float(in->x[r][i % HIDDEN]);
    }
  }
}

static void draw_routing(struct tool_numerics_data* data) {
  const struct tool_draw draw = {.routing = tool_routing_uniform,
                                 .rows = ROWS,
                                 .experts = EXPERTS,
                                 .k = TOPK};
  struct tool_numerics_inputs* in = &data->inputs;
  tool_routing_draw(&draw, data->experts, in->topk_weights);
  for (size_t s = 0; s < SLOTS; s++) {
    in->topk_weights[s] = 1.0f;
    for (size_t j = 0; j < TOPK; j++) {
      in->ids[j][s] = s % TOPK == j ? data->experts[s] : -1;
    }
  }
}

void tool_numerics_draw(struct tool_numerics_data* data) {
  uint64_t word = 0;
  draw_down(data, &word);
  draw_h(data, &word);
  draw_routing(data);
}

/* ---- references ---- */

static double e2m1_value(unsigned code) {
  static const double magnitudes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8) != 0 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

/* A positive, normal and finite code: no other is drawn. */
static double e4m3_value(unsigned code) {
  return ldexp(8.0 + (code & 7), (int)(code >> 3) - 10);
}

/* Nearest even, from a double at once. */
static double bf16_nearest(double value) {
  int exponent = 0;
  const double fraction = frexp(value, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static double down_weight(const struct tool_numerics_data* data, size_t e,
                          size_t i, size_t k) {
  const unsigned pair = data->inputs.down[e].codes[i][k / 2];
  return e2m1_value(pair >> (k % 2 * 4) & 15) *
         e4m3_value(data->inputs.down[e].scale[i][k / BLOCK]);
}

/* Output i of every slot of expert e. The sum, of 512 products of at most 6 (or 8)
 * and 8 significant bits, is exact in double. */
static void reference_row(const struct tool_numerics_data* data, size_t e,
                          size_t i, bool rounded, double* out) {
  const double scale_2 = (double)data->down_scale_2[e];
  double weight[INTER];
  for (size_t k = 0; k < INTER; k++) {
    weight[k] = down_weight(data, e, i, k);
    if (rounded) weight[k] = bf16_nearest(weight[k] * scale_2);
  }
  for (size_t s = 0; s < SLOTS; s++) {
    if ((size_t)data->experts[s] != e) continue;
    double sum = 0.0;
    for (size_t k = 0; k < INTER; k++) sum += weight[k] * data->h[s / TOPK][k];
    out[s * HIDDEN + i] = rounded ? sum : sum * scale_2;
  }
}

void tool_numerics_reference(const struct tool_numerics_data* data,
                             bool rounded, double* out) {
  for (size_t e = 0; e < EXPERTS; e++) {
    for (size_t i = 0; i < HIDDEN; i++) {
      reference_row(data, e, i, rounded, out);
    }
  }
}
