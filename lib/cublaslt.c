/* cuBLASLt, opened at run time: a static library should not make every program
 * that links it carry a 500 MB shared one, which only the opt-in TIERED mode
 * uses. Signatures are typed from the header, so the compiler checks them. */

#include <cublasLt.h>
#include <dlfcn.h>

#include "lib/moeplan.h"

static const char* const names[] = {
    "libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
};

/* Stays open: the library loses memory when it is closed, and opening it again
 * costs nothing. */
static void* open_library(void) {
  void* library = NULL;
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
    if (library == NULL) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

enum moeplan_status moeplan_cublaslt_version(size_t* version_out) {
  if (version_out == NULL) return moeplan_status_invalid_argument;
  void* library = open_library();
  if (library == NULL) return moeplan_status_cublas_error;
  __typeof__(&cublasLtGetVersion) get_version = NULL;
  *(void**)(&get_version) = dlsym(library, "cublasLtGetVersion");
  if (get_version == NULL) return moeplan_status_cublas_error;
  *version_out = get_version();
  return moeplan_status_success;
}
