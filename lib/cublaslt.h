/* cuBLASLt's functions, found at run time. The header's inline functions would
 * want the library at link time: what they call is found here too. */

#ifndef MOEPLAN_LIB_CUBLASLT_H_
#define MOEPLAN_LIB_CUBLASLT_H_

#include <cublasLt.h>

#include "lib/hooks.h"

/* X(member, function) */
#define MOEP_CUBLASLT_MAP(X)                                \
  X(get_version, cublasLtGetVersion)                        \
  X(create, cublasLtCreate)                                 \
  X(destroy, cublasLtDestroy)                               \
  X(status_name, cublasLtGetStatusName)                     \
  X(desc_init, cublasLtMatmulDescInit_internal)             \
  X(desc_set, cublasLtMatmulDescSetAttribute)               \
  X(layout_init, cublasLtMatrixLayoutInit_internal)         \
  X(preference_init, cublasLtMatmulPreferenceInit_internal) \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute)   \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic)              \
  X(algorithm_get, cublasLtMatmulAlgoConfigGetAttribute)    \
  X(matmul, cublasLtMatmul)

struct moep_cublaslt {
#define MOEP_CUBLASLT_MEMBER(member, function) __typeof__ (&(function))(member);
  MOEP_CUBLASLT_MAP(MOEP_CUBLASLT_MEMBER)
#undef MOEP_CUBLASLT_MEMBER
};

/* cublas_error when it is not found, or lacks a function. Logs nothing. */
enum moeplan_status moep_cublaslt_find(struct moep_cublaslt* functions_out);

#endif /* MOEPLAN_LIB_CUBLASLT_H_ */
