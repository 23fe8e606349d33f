/* CUDA's errors as statuses, each logged once where it is found. */

#ifndef MOEPLAN_LIB_CHECK_H_
#define MOEPLAN_LIB_CHECK_H_

#include "lib/hooks.h"

/* `what` is the call as written. */
enum moeplan_status moep_cuda_status(const struct moeplan_hooks* hooks,
                                     cudaError_t error, const char* what);

#define MOEP_CUDA(hooks, call) moep_cuda_status(hooks, call, #call)
#define MOEP_TRY_CUDA(hooks, call) MOEP_TRY(MOEP_CUDA(hooks, call))

#endif /* MOEPLAN_LIB_CHECK_H_ */
