/* Argument structs, one per operation, the same for host kernels and CUDA
 * launchers. Names come from the formula in moeplan.h; R is the plan's rows,
 * S = R * topk its slots (slot = row * topk + j), Ip the intermediate width
 * padded to 128, Hp the hidden width padded to 128, W the ffn's width. */

#ifndef MOEPLAN_KERNELS_ARGS_H_
#define MOEPLAN_KERNELS_ARGS_H_

#include "kernels/kset.h"
#include "kernels/route.h"
#include "kernels/site_table.h"

/* The rows one node works on: begin .. begin + count of the plan's total. All
 * row indexes are absolute. */
struct moep_rows {
  uint32_t begin, count, total;
  const int32_t* live_rows; /* one int32, or null: all rows live */
};

/* First row past the ones to do. */
MOEP_INLINE uint32_t moep_rows_end(const struct moep_rows* rows) {
  const uint32_t live = moep_live_rows(rows->live_rows, rows->total);
  const uint32_t end = rows->begin + rows->count;
  return live < end ? live : end;
}

/* How many of the node's rows are to be done. */
MOEP_INLINE uint32_t moep_rows_alive(const struct moep_rows* rows) {
  const uint32_t end = moep_rows_end(rows);
  return end > rows->begin ? end - rows->begin : 0;
}

/* Where tests read float32 accumulators before any rounding: total over the
 * segments, before the epilogue. Null outside tests. */
struct moep_tap {
  float* logits;      /* [R, E] */
  float* expert_up;   /* [S, 2, I], gate then up */
  float* expert_down; /* [S, H] */
  float* ffn_up;      /* [R, 2, W] */
  float* ffn_down;    /* [R, H] */
};

struct moep_trace {
  int32_t* ids;     /* [capacity, topk] */
  float* weights;   /* [capacity, topk] */
  uint64_t* cursor; /* rows written so far */
  uint32_t capacity;
};

/* bf16 rows of the caller's. */
struct moep_x {
  const uint16_t* data; /* [R, H], rows `stride` apart */
  uint64_t stride;
};

struct moep_y {
  void* data; /* [R, H] bf16, or float32 when is_f32; rows `stride` apart */
  uint64_t stride;
  uint32_t is_f32;
};

/* logits[r, e] = dot(x[r], router[e]). Skipped when routing is external. */
struct moep_logits_args {
  struct moep_rows rows;
  struct moep_x x;
  const struct moep_site_table* site;
  const int32_t* external_ids; /* non-null: do nothing */
  float* logits;               /* [R, E] */
  uint32_t hidden, experts;
  struct moep_tap tap;
};

/* h[r] = swiglu(ffn.gate x[r], ffn.up x[r]), natural order. */
struct moep_ffn_up_args {
  struct moep_rows rows;
  struct moep_x x;
  const struct moep_site_table* site;
  uint16_t* h; /* [R, W] bf16 */
  uint32_t hidden, width;
  float limit;
  struct moep_tap tap;
};

/* out[r, n] = weight[n] . x[r], by cuBLASLt (lib/matmul.c), all rows of the plan:
 * the router's logits, the gate and up of the shared or dense expert, its down. */
struct moep_matmul_args {
  const uint16_t* weight; /* [N, K] bf16, rows weight_stride apart */
  uint64_t weight_stride;
  struct moep_x x;   /* [R, K] */
  struct moep_y out; /* [R, N]; data null: do nothing */
  void* work;        /* scratch memory */
};

/* h[r] = swiglu(gate[r], up[r]). h may be gate itself. */
struct moep_swiglu_args {
  struct moep_rows rows;
  const uint16_t* gate; /* [R, W] bf16 */
  const uint16_t* up;   /* [R, W] bf16 */
  uint16_t* h;          /* [R, W] bf16 */
  uint32_t width;
  float limit;
};

/* out[r] = ffn.down h[r]: float32 for the shared expert, y for a dense site. */
struct moep_ffn_down_args {
  struct moep_rows rows;
  const uint16_t* h; /* [R, W] bf16 */
  const struct moep_site_table* site;
  struct moep_y out; /* [R, H] */
  uint32_t hidden, width;
  struct moep_tap tap;
};

/* ids and weights of each row: from logits, or copied from outside. Rows that
 * are not live get id -1 and weight 0. Live rows go to the trace ring; group
 * also moves its cursor. */
struct moep_route_args {
  struct moep_rows rows;
  struct moep_route_rule rule;
  const struct moep_site_table* site;
  float* logits;                 /* [R, E]; group writes them */
  const int32_t* external_ids;   /* [R, topk], or null */
  const float* external_weights; /* [R, topk] */
  int32_t* ids;                  /* [R, topk]; -1: unfilled */
  float* weights;                /* [R, topk] */
  struct moep_trace trace;
};

/* A routed site for at most 8 rows: logits, routing, the union of the rows'
 * experts, h[slot] = swiglu(expert.gate x, expert.up x), y[r] = sum_j w[j]
 * bf16(expert.down h[slot]) + ffn.down swiglu(ffn.gate x[r], ffn.up x[r]). On the
 * host h is in p order; the CUDA kernel, which alone reads what it wrote, keeps
 * each block of 128 in lane order (nvfp4_gemv.cuh). width may be 0. */
struct moep_group_args {
  struct moep_route_args route;
  struct moep_x x;
  uint16_t* h;     /* [S, Ip] bf16, zero-padded */
  uint16_t* ffn_h; /* [R, W] bf16 */
  struct moep_y y;
  uint32_t hidden, inter, width;
  float limit;
  struct moep_tap tap;
};

/* Stable sort of the slots by expert: sort_count fills counts per tile of 1024
 * slots, sort_scan turns them into offsets (and moves the trace cursor past the
 * rows that route has written), sort_scatter places the slots. */
enum { MOEP_SORT_TILE = 1024 };

struct moep_sort_args {
  struct moep_rows rows;
  const int32_t* ids;       /* [S] */
  uint32_t* counts;         /* [ceil(S / 1024), E] */
  uint32_t* expert_offsets; /* [E + 1] */
  int32_t* sorted_slots;    /* [S]: position -> slot */
  int32_t* token_to_perm;   /* [S]: slot -> position, -1 if unfilled */
  uint64_t* trace_cursor;   /* or null */
  uint32_t slots, topk, experts;
};

/* xp[r] = x[r] in p order, zero-padded. sm90: slot_x, the same for each slot at its
 * position, in tile order. */
struct moep_permute_x_args {
  struct moep_rows rows;
  struct moep_x x;
  const struct moep_site_table* site;
  const int32_t* ids;             /* [S] */
  const uint32_t* expert_offsets; /* [E + 1] */
  const int32_t* token_to_perm;   /* [S] */
  uint16_t* xp;                   /* [R, Hp] bf16 */
  uint16_t* slot_x;               /* [S, Hp] bf16 */
  uint32_t hidden, slots, topk;
};

/* The slots of experts expert_begin .. + expert_count, in sorted order. */
struct moep_grouped_args {
  const struct moep_site_table* site;
  const uint32_t* expert_offsets; /* [E + 1] */
  const int32_t* sorted_slots;    /* [S] */
  const uint16_t* xp;             /* up: [R, Hp] bf16 in p order */
  const uint16_t* slot_x;         /* up, sm90: [S, Hp] bf16 in tile order */
  uint16_t* h;        /* [S sorted, Ip] bf16 in p order; sm90: in tile order */
  uint16_t* slot_out; /* down: [S sorted, H] bf16 */
  uint32_t expert_begin, expert_count;
  uint32_t hidden, inter, topk, slots;
  uint32_t tile; /* tokens per tile */
  float limit;
  struct moep_tap tap;
};

struct moep_combine_args {
  struct moep_rows rows;
  const struct moep_site_table* site;
  const int32_t* ids;           /* [R, topk] */
  const float* weights;         /* [R, topk] */
  const int32_t* token_to_perm; /* [S] */
  const uint16_t* slot_out;     /* [S sorted, H] bf16 */
  const float* ffn_out;         /* [R, H] float32, or null: no shared expert */
  struct moep_y y;
  uint32_t hidden, topk, experts;
};

#endif /* MOEPLAN_KERNELS_ARGS_H_ */
