/* A loop over independent pieces of work, spread over threads. */

#ifndef MOEPLAN_KERNELS_HOST_PARALLEL_H_
#define MOEPLAN_KERNELS_HOST_PARALLEL_H_

#include <stdint.h>

typedef void (*moep_work_fn)(const void* context, uint32_t item);

/* Calls work(context, i) once for each i in 0..items-1, in any order, on at
 * most `threads` threads (0: one per processor) including the caller's, with
 * round-to-nearest and subnormals in force; the caller's floating-point mode is
 * restored. `steps` is the k16 steps of all items together: little work stays
 * on one thread. Results must not depend on order. A thread that cannot be
 * started is done without. */
void moep_parallel(uint32_t items, uint64_t steps, uint32_t threads,
                   moep_work_fn work, const void* context);

#endif /* MOEPLAN_KERNELS_HOST_PARALLEL_H_ */
