#include "kernels/host/panel.h"

#include "kernels/host/step.h"
#include "kernels/scalar.h"

struct moep_operand moep_operand_nvfp4(const struct moep_nvfp4* matrix,
                                       uint32_t n, uint32_t k) {
  return (struct moep_operand){
      .weight = matrix->weight,
      .scale = matrix->scale,
      .pitch_bytes = k / 2,
      .n = n,
      .k = k,
      .segment_k = MOEP_SEGMENT_K,
  };
}

struct moep_operand moep_operand_bf16(const uint16_t* weight, uint32_t n,
                                      uint32_t k, uint64_t pitch,
                                      uint32_t segment_k) {
  return (struct moep_operand){
      .weight = (const uint8_t*)weight,
      .pitch_bytes = pitch * sizeof(uint16_t),
      .n = n,
      .k = k,
      .segment_k = segment_k,
  };
}

void moep_panel_stage(const uint16_t* x, uint32_t k0, uint32_t k, int permute,
                      uint16_t staged[MOEP_BLOCK_K]) {
  for (uint32_t i = 0; i < MOEP_BLOCK_K; i++) {
    const uint32_t source = k0 + (permute ? moep_k_from_p(i) : i);
    staged[i] = source < k ? x[source] : 0;
  }
}

/* One weight row's 128 operands from k0 on, in step order. */
static void stage_weights(const struct moep_operand* a, uint32_t n, uint32_t k0,
                          uint16_t staged[MOEP_BLOCK_K]) {
  const uint8_t* row = a->weight + n * a->pitch_bytes;
  if (a->scale == NULL) {
    const uint32_t count = a->k - k0 < MOEP_BLOCK_K ? a->k - k0 : MOEP_BLOCK_K;
    memset(staged, 0, MOEP_BLOCK_K * sizeof(*staged));
    memcpy(staged, row + 2 * (uint64_t)k0, count * sizeof(*staged));
    return;
  }
  const uint8_t* scales = a->scale + (uint64_t)n * (a->k / 16);
  for (uint32_t p = 0; p < MOEP_BLOCK_K; p++) {
    const uint32_t k = k0 + moep_k_from_p(p);
    staged[p] = 0;
    if (k >= a->k) continue;
    const uint32_t code = (row[k / 2] >> (4 * (k & 1))) & 15u;
    staged[p] = moep_bf16_from_float(moep_e2m1_to_float(code) *
                                     moep_block_scale(scales[k / 16] & 127u));
  }
}

/* One output: the chain of one weight row and one activation row. */
static float chain(const struct moep_operand* a, uint32_t n, const uint16_t* x,
                   enum moep_order order) {
  const int permute = a->scale != NULL && order == moep_order_natural;
  const uint32_t x_end = order == moep_order_p ? moep_padded_k(a->k) : a->k;
  float total = 0.0f, acc = 0.0f;
  for (uint32_t k0 = 0; k0 < a->k; k0 += MOEP_BLOCK_K) {
    uint16_t weights[MOEP_BLOCK_K], activations[MOEP_BLOCK_K];
    stage_weights(a, n, k0, weights);
    moep_panel_stage(x, k0, x_end, permute, activations);
    for (uint32_t i = 0; i < MOEP_BLOCK_K; i += MOEP_STEP_K) {
      acc = moep_step(&moep_step_sm90, weights + i, activations + i, acc);
    }
    const uint32_t next = k0 + MOEP_BLOCK_K;
    if (next % a->segment_k == 0 || next >= a->k) {
      total = next <= a->segment_k ? acc : total + acc;
      acc = 0.0f;
    }
  }
  return moep_f32_stored(total);
}

void moep_panel_portable(const struct moep_operand* a, uint32_t n0,
                         const uint16_t* const* x, uint32_t rows,
                         enum moep_order order, float totals[][MOEP_PANEL_N]) {
  for (uint32_t r = 0; r < rows; r++) {
    for (uint32_t i = 0; i < MOEP_PANEL_N && n0 + i < a->n; i++) {
      totals[r][i] = chain(a, n0 + i, x[r], order);
    }
  }
}

void moep_panel(const struct moep_operand* a, uint32_t n0,
                const uint16_t* const* x, uint32_t rows, enum moep_order order,
                float totals[][MOEP_PANEL_N]) {
  const uint32_t again = moep_panel_avx2(a, n0, x, rows, order, totals);
  for (uint32_t r = 0; again >> r != 0 && r < rows; r++) {
    if ((again >> r & 1) == 0) continue;
    moep_panel_portable(a, n0, x + r, 1, order, totals + r);
  }
}
