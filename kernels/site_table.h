/* The site blob that moeplan_site_write fills and the caller uploads: addresses
 * and epilogue scales, routed experts by global id. A null weight address in
 * an expert's gate means that the expert belongs to another rank. */

#ifndef MOEPLAN_KERNELS_SITE_TABLE_H_
#define MOEPLAN_KERNELS_SITE_TABLE_H_

#include <stdint.h>

/* One NVFP4 projection [N, K] of one expert. */
struct moep_nvfp4 {
  const uint8_t* weight; /* u8 [N, K/2], even k in the low nibble */
  const uint8_t* scale;  /* E4M3 [N, K/16] */
  float epilogue;        /* weight_scale_2 x 2^26 */
  uint32_t reserved;
};

struct moep_expert {
  struct moep_nvfp4 gate; /* [I, H] */
  struct moep_nvfp4 up;   /* [I, H] */
  struct moep_nvfp4 down; /* [H, I] */
};

/* The shared expert or the dense FFN, of this rank's width W. */
struct moep_ffn {
  const uint16_t* gate; /* [W, H] bf16 */
  const uint16_t* up;   /* [W, H] bf16 */
  const uint16_t* down; /* [H, W] bf16, rows down_pitch apart */
  uint64_t down_pitch;  /* elements */
};

/* Opens a written blob; with the sizes it was written for. */
#define MOEP_SITE_MAGIC 0x6D6F6570u /* "moep" */

struct moep_site_table {
  uint32_t magic;
  uint32_t hidden, inter, expert_count, width;
  uint32_t reserved;
  const uint16_t* router; /* [E, H] bf16 */
  const float* bias;      /* [E] float32, or null: zeros */
  struct moep_ffn ffn;
  struct moep_expert experts[]; /* [E] */
};

#endif /* MOEPLAN_KERNELS_SITE_TABLE_H_ */
