#include "lib/check.h"

enum moeplan_status moep_cuda_status(const struct moeplan_hooks* hooks,
                                     cudaError_t error, const char* what) {
  if (error == cudaSuccess) return moeplan_status_success;
  return MOEP_REFUSE(hooks, cuda_error, "%s failed: %s (%d)", what,
                     cudaGetErrorString(error), (int)error);
}
