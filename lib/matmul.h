/* Stages 5 to 7: the projections that TIERED plans give to cuBLASLt. Shape,
 * types and algorithm are fixed when the plan is made; what the binding brings,
 * addresses and strides, comes with the call. */

#ifndef MOEPLAN_LIB_MATMUL_H_
#define MOEPLAN_LIB_MATMUL_H_

#include "kernels/kernels.h"
#include "lib/kernel_table.h"
#include "lib/planner.h"

/* A TIERED plan's multiplications; gate and up share one. */
enum moep_matmul_id {
  moep_matmul_logits,
  moep_matmul_up,
  moep_matmul_down,
  MOEP_MATMUL_COUNT, /* as a node's: none */
};

/* Which of them an operation is; MOEP_MATMUL_COUNT: none. */
enum moep_matmul_id moep_matmul_of(enum moep_op op);

/* Plain data: plans are copied. */
struct moep_matmul {
  uint32_t rows, n, k;
  bool out_f32;
  uint32_t sm_limit;     /* 0: all */
  bool is_chosen;        /* not for devices that are described only */
  uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t */
  size_t work_bytes;     /* that it asks for */
};

/* The line of such an operation, which no kernel table has. */
const struct moep_kernel* moep_matmul_kernel(enum moep_op op);

/* Choose the algorithm, and have the driver load its kernels: the call is
 * captured once, with made-up addresses, into a graph whose kernels are
 * instantiated, never launched, and thrown away. `matmul` has its shape. */
enum moeplan_status moep_matmul_choose(struct moeplan_planner* planner,
                                       struct moep_matmul* matmul);

/* Enqueue; in a capture it becomes nodes of it. */
enum moeplan_status moep_matmul_run(const struct moeplan_planner* planner,
                                    const struct moep_matmul* matmul,
                                    const struct moep_matmul_args* args,
                                    cudaStream_t stream);

/* "algo 66 tile 20 stages 36 split_k 1 work 0", or "algo -". */
enum { MOEP_MATMUL_TEXT_BYTES = 128 };
void moep_matmul_text(const struct moeplan_planner* planner,
                      const struct moep_matmul* matmul,
                      char text[MOEP_MATMUL_TEXT_BYTES]);

/* What the planner holds of cuBLASLt; NULL is allowed. */
void moep_matmul_close(struct moeplan_planner* planner);

#endif /* MOEPLAN_LIB_MATMUL_H_ */
