/* One expert's panels over a list of slots: the arithmetic that every routed
 * host kernel shares, so that no recipe has its own. */

#ifndef MOEPLAN_KERNELS_HOST_EXPERT_NVFP4_HOST_H_
#define MOEPLAN_KERNELS_HOST_EXPERT_NVFP4_HOST_H_

#include "kernels/args.h"
#include "kernels/host/panel.h"

/* Slots of one expert, at most MOEP_PANEL_ROWS. */
struct moep_slots {
  uint32_t count;
  const uint16_t* x[MOEP_PANEL_ROWS]; /* the slots' inputs */
  uint16_t* h[MOEP_PANEL_ROWS];       /* up: their rows of h, p order */
  uint64_t slot[MOEP_PANEL_ROWS];     /* absolute slots, for the tap */
};

/* h[., n0 .. n0 + 7] = swiglu(gate x, up x); the last panel also writes the
 * zeros between inter and its padded width. */
void moep_host_expert_up_panel(const struct moep_expert* expert,
                               uint32_t hidden, uint32_t inter, float limit,
                               uint32_t n0, const struct moep_slots* slots,
                               enum moep_order order,
                               const struct moep_tap* tap);

/* out[i][0..7] = bf16(down h) of columns n0 .. n0 + 7, as float32. */
void moep_host_expert_down_panel(const struct moep_expert* expert,
                                 uint32_t hidden, uint32_t inter, uint32_t n0,
                                 const struct moep_slots* slots,
                                 float out[][MOEP_PANEL_N],
                                 const struct moep_tap* tap);

/* Whether expert `id` is filled, in range and on this rank. */
static inline bool moep_host_expert_here(const struct moep_site_table* site,
                                         int32_t id, uint32_t experts) {
  return id >= 0 && (uint32_t)id < experts &&
         site->experts[id].gate.weight != NULL;
}

#endif /* MOEPLAN_KERNELS_HOST_EXPERT_NVFP4_HOST_H_ */
