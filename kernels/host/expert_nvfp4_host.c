#include "kernels/host/expert_nvfp4_host.h"

#include "kernels/scalar.h"

void moep_host_expert_up_panel(const struct moep_expert* expert,
                               uint32_t hidden, uint32_t inter, float limit,
                               uint32_t n0, const struct moep_slots* slots,
                               enum moep_order order,
                               const struct moep_tap* tap) {
  const struct moep_operand gate =
      moep_operand_nvfp4(&expert->gate, inter, hidden);
  const struct moep_operand up = moep_operand_nvfp4(&expert->up, inter, hidden);
  float g[MOEP_PANEL_ROWS][MOEP_PANEL_N], u[MOEP_PANEL_ROWS][MOEP_PANEL_N];
  moep_panel(&gate, n0, slots->x, slots->count, order, g);
  moep_panel(&up, n0, slots->x, slots->count, order, u);
  for (uint32_t r = 0; r < slots->count; r++) {
    for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
      const float value =
          moep_swiglu(moep_bf16_round(g[r][i] * expert->gate.epilogue),
                      moep_bf16_round(u[r][i] * expert->up.epilogue), limit);
      slots->h[r][moep_p_from_k(n0 + i)] = moep_bf16_from_float(value);
      if (tap->expert_up == NULL) continue;
      float* row = tap->expert_up + slots->slot[r] * 2 * inter + n0 + i;
      row[0] = g[r][i];
      row[inter] = u[r][i];
    }
    if (n0 + MOEP_PANEL_N < inter) continue;
    for (uint32_t k = inter; k < moep_padded_k(inter); k++) {
      slots->h[r][moep_p_from_k(k)] = 0;
    }
  }
}

void moep_host_expert_down_panel(const struct moep_expert* expert,
                                 uint32_t hidden, uint32_t inter, uint32_t n0,
                                 const struct moep_slots* slots,
                                 float out[][MOEP_PANEL_N],
                                 const struct moep_tap* tap) {
  const struct moep_operand down =
      moep_operand_nvfp4(&expert->down, hidden, inter);
  float totals[MOEP_PANEL_ROWS][MOEP_PANEL_N];
  moep_panel(&down, n0, slots->x, slots->count, moep_order_p, totals);
  for (uint32_t r = 0; r < slots->count; r++) {
    for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
      out[r][i] = moep_bf16_round(totals[r][i] * expert->down.epilogue);
      if (tap->expert_down == NULL) continue;
      tap->expert_down[slots->slot[r] * hidden + n0 + i] = totals[r][i];
    }
  }
}
