/* The site blob that moeplan_site_write fills and the caller uploads: addresses
 * and epilogue scales, routed experts by global id, and where kernels want them the
 * tensor maps of the experts' weights behind. A null weight address in an expert's
 * gate means that the expert belongs to another rank. */

#ifndef MOEPLAN_KERNELS_SITE_TABLE_H_
#define MOEPLAN_KERNELS_SITE_TABLE_H_

#include "kernels/portable.h"

/* A tensor map: its alignment (CUtensorMap's) and so the blob's; rows of a box and bytes
 * of each. */
enum {
  MOEP_MAP_ALIGNMENT = 128,
  MOEP_MAP_BOX_ROWS = 128,
  MOEP_MAP_BOX_BYTES = 128,
};

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

/* A tensor map of the copy engine (CUtensorMap): a weight matrix as bytes [N, K/2], in
 * boxes swizzled by their rows' bytes; zeros outside. */
struct moep_tensor_map {
  uint64_t words[16];
};
struct moep_expert_maps {
  struct moep_tensor_map gate, up, down;
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
  /* From the blob's begin to moep_expert_maps[E], bytes; 0: none. */
  uint32_t maps;
  const uint16_t* router; /* [E, H] bf16 */
  const float* bias;      /* [E] float32, or null: zeros */
  struct moep_ffn ffn;
  struct moep_expert experts[]; /* [E] */
};

/* Bytes of the blob without maps, where these begin, and with them. */
MOEP_INLINE uint32_t moep_site_plain_bytes(uint32_t experts) {
  return (uint32_t)(sizeof(struct moep_site_table) +
                    experts * sizeof(struct moep_expert));
}
MOEP_INLINE uint32_t moep_site_maps(uint32_t experts) {
  return moep_round_up(moep_site_plain_bytes(experts), MOEP_MAP_ALIGNMENT);
}
MOEP_INLINE uint32_t moep_site_mapped_bytes(uint32_t experts) {
  return moep_site_maps(experts) +
         experts * (uint32_t)sizeof(struct moep_expert_maps);
}

#endif /* MOEPLAN_KERNELS_SITE_TABLE_H_ */
