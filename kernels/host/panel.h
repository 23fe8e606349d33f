/* A panel: 8 consecutive weight rows of one projection times a few rows of
 * activations, through the contract's chain of steps. Everything that a host
 * kernel multiplies goes through here. */

#ifndef MOEPLAN_KERNELS_HOST_PANEL_H_
#define MOEPLAN_KERNELS_HOST_PANEL_H_

#include <stdint.h>

#include "kernels/kset.h"
#include "kernels/site_table.h"

enum {
  MOEP_PANEL_N = 8,     /* weight rows of a panel */
  MOEP_PANEL_ROWS = 16, /* activation rows of one call at most */
};

/* How activations lie in memory. */
enum moep_order {
  moep_order_natural = 0,
  moep_order_p = 1, /* p order, zero-padded to 128 (NVFP4 operands only) */
};

/* Weights [N, K]: NVFP4 if `scale` is set, bf16 otherwise. Addresses need no
 * alignment beyond their element's. */
struct moep_operand {
  const uint8_t* weight;
  const uint8_t* scale; /* E4M3 [N, K/16], or NULL */
  uint64_t pitch_bytes; /* between rows of weight */
  uint32_t n, k;        /* k: a multiple of 16 */
  uint32_t segment_k;   /* a multiple of 128 */
};

struct moep_operand moep_operand_nvfp4(const struct moep_nvfp4* matrix,
                                       uint32_t n, uint32_t k);
struct moep_operand moep_operand_bf16(const uint16_t* weight, uint32_t n,
                                      uint32_t k, uint64_t pitch,
                                      uint32_t segment_k);

/* totals[r][i]: weight row n0 + i times activation row x[r], float32, summed
 * over the segments, before any epilogue. Columns past n are unspecified.
 * 1 <= rows <= MOEP_PANEL_ROWS. */
void moep_panel(const struct moep_operand* a, uint32_t n0,
                const uint16_t* const* x, uint32_t rows, enum moep_order order,
                float totals[][MOEP_PANEL_N]);

/* The same on any machine: the reference of the vector version. */
void moep_panel_portable(const struct moep_operand* a, uint32_t n0,
                         const uint16_t* const* x, uint32_t rows,
                         enum moep_order order, float totals[][MOEP_PANEL_N]);

/* The same by AVX2. Returns a bit per row whose totals are not to be used
 * (something infinite, NaN or subnormal on the way): the caller takes the
 * portable version for these. All bits set where AVX2 is missing. */
uint32_t moep_panel_avx2(const struct moep_operand* a, uint32_t n0,
                         const uint16_t* const* x, uint32_t rows,
                         enum moep_order order, float totals[][MOEP_PANEL_N]);

/* The 128 activations from k0 on (k past `k` as zeros), in step order. */
void moep_panel_stage(const uint16_t* x, uint32_t k0, uint32_t k, int permute,
                      uint16_t staged[MOEP_BLOCK_K]);

#endif /* MOEPLAN_KERNELS_HOST_PANEL_H_ */
