/* What the fused host kernels share with the bf16 projections. */

#ifndef MOEPLAN_KERNELS_HOST_FFN_BF16_HOST_H_
#define MOEPLAN_KERNELS_HOST_FFN_BF16_HOST_H_

#include "kernels/args.h"
#include "kernels/host/panel.h"

/* y[row, column], rounded or stored as its type wants. */
void moep_host_store_y(const struct moep_y* y, uint64_t row, uint32_t column,
                       float value);

/* The operations logits and ffn_up. */
void moep_host_logits(const struct moep_logits_args* args, uint32_t threads);
void moep_host_ffn_up(const struct moep_ffn_up_args* args, uint32_t threads);

/* totals of ffn.down's rows n0 .. n0 + 7 for `rows` rows of h [., width]. */
void moep_host_ffn_down_panel(const struct moep_ffn* ffn, uint32_t hidden,
                              uint32_t width, uint32_t n0,
                              const uint16_t* const* h, uint32_t rows,
                              float totals[][MOEP_PANEL_N]);

#endif /* MOEPLAN_KERNELS_HOST_FFN_BF16_HOST_H_ */
