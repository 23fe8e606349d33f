/* Builds sites with random weights, runs plans over them between guards, on
 * poisoned memory, and keeps what the plan computed: y, routing, and the float32
 * accumulators of every operation. C11, host memory; the .cc files assert. */

#ifndef MOEPLAN_TESTS_HARNESS_H_
#define MOEPLAN_TESTS_HARNESS_H_

#include "kernels/args.h"
#include "lib/moeplan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- random numbers ------------------------------------------------------ */

struct harness_random {
  uint64_t state;
};

uint32_t harness_next(struct harness_random* random); /* 32 bits */
uint32_t harness_below(struct harness_random* random, uint32_t n);
/* bf16 of either sign, exponent uniform in -spread..spread around 1. */
uint16_t harness_bf16(struct harness_random* random, int spread);

/* ---- sites --------------------------------------------------------------- */

enum { HARNESS_LOG_BYTES = 1 << 14 };

/* One site, its planner and its inputs. Fill `config` (from harness_config) and
 * the numbers below it, then open. */
struct harness {
  struct moeplan_config config;
  uint64_t seed;
  int spread;      /* of bf16 exponents, see harness_bf16 */
  uint32_t x_rows; /* rows of x */
  bool no_bias;
  uint32_t distinct_experts;   /* expert e has the bytes of e % this; 0: own */
  const uint8_t* null_experts; /* [E] nonzero: on another rank; or NULL */

  moeplan_planner_t planner;
  struct moeplan_site site;
  void* blob;                  /* written site */
  uint16_t* x;                 /* [x_rows, H] bf16 */
  char log[HARNESS_LOG_BYTES]; /* every line since open, with newlines */
  void* memory;                /* owned blocks, a list */
};

/* A routed site's configuration; width 0: no shared expert. */
struct moeplan_config harness_config(uint32_t hidden, uint32_t inter,
                                     uint32_t experts, uint32_t topk,
                                     uint32_t width);
struct moeplan_config harness_dense_config(uint32_t hidden, uint32_t width);

/* A harness with defaults; no memory yet. */
struct harness harness_of(struct moeplan_config config, uint64_t seed,
                          uint32_t x_rows);

/* Make weights, site, x and planner on "host". Aborts on any failure. */
void harness_open(struct harness* h);
void harness_close(struct harness* h);

/* The part of `n` things (experts, columns) that rank `rank` of `ranks` holds
 * begins here and ends where the next one's begins. */
uint32_t harness_rank_begin(uint32_t n, uint32_t rank, uint32_t ranks);

/* Open one rank of an open site, over the same weights and x: its share of the
 * experts, and its columns of the shared or dense expert in units of 16, with
 * the whole's width as down_pitch. `whole` must outlive it. */
void harness_open_rank(struct harness* h, const struct harness* whole,
                       uint32_t rank, uint32_t ranks);

/* Give expert `e` of one rank to another. Neither blob is written. */
void harness_move_expert(struct harness* from, struct harness* to, uint32_t e);

/* Write `site` into `blob` again, after the caller changed either. */
enum moeplan_status harness_write_site(struct harness* h);

/* Zeroed memory that lives until harness_close, 256-byte aligned. */
void* harness_allocate(struct harness* h, size_t bytes);

/* ---- runs ---------------------------------------------------------------- */

enum harness_way {
  harness_way_enqueue,
  harness_way_graph, /* created, replayed twice */
  harness_way_tap,   /* enqueue, with accumulators */
};

/* What to run: rows first_row .. + rows of x. */
struct harness_run {
  uint32_t rows, first_row;
  enum harness_way way;
  const struct moeplan_options* options; /* NULL: defaults */
  int32_t live_rows;                     /* -1: none given */
  const int32_t* topk_ids;               /* [rows, k], or NULL */
  const float* topk_weights;
  bool in_place;  /* y == x (on a copy) */
  uint8_t poison; /* byte that fills the workspace and y before the run */
};

struct harness_run harness_rows(uint32_t first_row, uint32_t rows);

/* What came out; free with harness_result_free. Rows are those of the run. */
struct harness_result {
  enum moeplan_status status;
  uint32_t rows;
  uint32_t y_bytes; /* per element */
  uint8_t* y;       /* [rows, H] */
  int32_t* ids;     /* [rows, k] from the trace ring; poison where not live */
  float* weights;   /* [rows, k] */
  uint64_t traced;  /* rows the ring received */
  struct moep_tap tap; /* way_tap: accumulators, poison where not computed */
  size_t tap_bytes[5]; /* of one row of each member of tap, in its order */
  bool guards_intact;  /* nothing was written around y and the workspace */
};

/* Plan and run. Status is the first failure's; then nothing else is set. */
struct harness_result harness_run_plan(struct harness* h,
                                       const struct harness_run* run);
void harness_result_free(struct harness_result* result);

/* The name of the first thing in which row `a` of `first` and row `b` of
 * `second` differ bit for bit ("y", "ids", "weights", "logits", ...), or NULL.
 * Accumulators are compared if both have them. */
const char* harness_row_difference(const struct harness* h,
                                   const struct harness_result* first,
                                   uint32_t a,
                                   const struct harness_result* second,
                                   uint32_t b);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEPLAN_TESTS_HARNESS_H_ */
