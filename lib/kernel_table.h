/* Stage 5: kernels.inc as an array. */

#ifndef MOEPLAN_LIB_KERNEL_TABLE_H_
#define MOEPLAN_LIB_KERNEL_TABLE_H_

#include "kernels/kernels.h"
#include "lib/device.h"

struct moep_kernel {
  const char* name;
  enum moep_op op;
  uint32_t min_sm, max_sm; /* 0: the host */
  uint32_t min_rows;
  uint32_t multiple; /* of widths: a power of two */
  uint32_t block_n;  /* output columns of a block; 0: the grid is over rows */
  uint32_t blocks;   /* per SM of a persistent grid; 0: none */
  moep_launch_fn launch;
  moep_load_fn load; /* NULL on the host */
};

extern const struct moep_kernel moep_kernels[];
extern const size_t moep_kernel_count;

const char* moep_op_name(enum moep_op op);

bool moep_kernel_runs_on(const struct moep_kernel* kernel,
                         const struct moep_device* device);

/* What a node asks of its kernel. */
struct moep_kernel_use {
  uint32_t rows;
  uint32_t widths; /* the site's, or-ed: their common factor of two counts */
  bool base;       /* the plain kernel */
};

/* The line of `op` that `use` takes on `device`, as kernels.inc says; NULL if
 * none fits. */
const struct moep_kernel* moep_kernel_find(const struct moep_device* device,
                                           enum moep_op op,
                                           const struct moep_kernel_use* use);

#endif /* MOEPLAN_LIB_KERNEL_TABLE_H_ */
