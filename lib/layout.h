/* Stage 4: where each intermediate lies in the caller's workspace. One table:
 * the size query is the layout's total, and the same offsets are what kernels
 * get. No buffer shares memory with another, so nodes may overlap in time as
 * they like; the total is a sum of terms that never fall with rows. */

#ifndef MOEPLAN_LIB_LAYOUT_H_
#define MOEPLAN_LIB_LAYOUT_H_

#include "kernels/args.h"
#include "lib/dims.h"

/* clang-format off */
/* X(name, type, outer, inner): [outer, inner] of `type`; a zero dimension means
 * that the site has no such buffer. R rows, S slots, E experts, k topk, H
 * hidden, Hp and Ip padded to 128, W the ffn's width, T tiles of the sort; wide is
 * 1 in TIERED plans of more than 8 rows. */
#define MOEP_BUFFER_MAP(X)                                                  \
  X(logits,         f32,  R, E)         /* of every expert */               \
  X(topk_ids,       i32,  R, k)         /* slot order; -1: unfilled */      \
  X(topk_weights,   f32,  R, k)                                             \
  X(ffn_h,          bf16, R, W)         /* of the shared or dense FFN */    \
  X(ffn_out,        f32,  routed * R, W == 0 ? 0 : H) /* shared output */   \
  X(expert_h,       bf16, S, Ip)        /* p, lane or tile order */         \
  X(slot_out,       bf16, S, Hp)        /* sorted; sm_90: first each slot's x */ \
  X(xp,             bf16, routed * R, Hp) /* x in p order */                \
  X(sort_counts,    u32,  T, E)                                             \
  X(expert_offsets, u32,  routed, E + 1)                                    \
  X(sorted_slots,   i32,  R, k)                                             \
  X(token_to_perm,  i32,  R, k)                                            \
  X(ffn_up,         bf16, wide * R, W)  /* TIERED; gate is in ffn_h */     \
  X(matmul_work,    u8,   wide, MOEP_MATMUL_WORK_BYTES) /* cuBLASLt's own */
/* clang-format on */

enum moep_buffer {
#define MOEP_BUFFER_ENUM(name, type, outer, inner) moep_buffer_##name,
  MOEP_BUFFER_MAP(MOEP_BUFFER_ENUM)
#undef MOEP_BUFFER_ENUM
      MOEP_BUFFER_COUNT
};

struct moep_extent {
  const char* name;
  const char* type;
  uint64_t shape[2]; /* elements */
  size_t offset, bytes;
};

struct moep_layout {
  struct moep_extent buffers[MOEP_BUFFER_COUNT];
  size_t total_bytes; /* a multiple of 256 */
};

/* Most that cuBLASLt may ask for: what its guide recommends for Hopper. */
enum { MOEP_MATMUL_WORK_BYTES = 32 << 20 };

/* Pure. Cannot fail: the limits of dims keep every size below 2^48. */
void moep_layout_compute(const struct moep_dims* dims, uint32_t rows,
                         enum moeplan_numerics numerics,
                         struct moep_layout* layout_out);

#endif /* MOEPLAN_LIB_LAYOUT_H_ */
