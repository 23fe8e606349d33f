/* cuBLASLt, opened at run time: a static library should not make every program
 * that links it carry a 500 MB shared one, which only the opt-in TIERED mode
 * uses. Signatures are typed from the header, so the compiler checks them. */

#include "lib/cublaslt.h"

#include <dlfcn.h>

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

enum moeplan_status moep_cublaslt_find(struct moep_cublaslt* functions_out) {
  struct moep_cublaslt functions;
  void* library = open_library();
  if (library == NULL) return moeplan_status_cublas_error;
#define FIND(member, function)                              \
  *(void**)(&functions.member) = dlsym(library, #function); \
  if (functions.member == NULL) return moeplan_status_cublas_error;
  MOEP_CUBLASLT_MAP(FIND)
#undef FIND
  *functions_out = functions;
  return moeplan_status_success;
}

enum moeplan_status moeplan_cublaslt_version(size_t* version_out) {
  struct moep_cublaslt functions;
  if (version_out == NULL) return moeplan_status_invalid_argument;
  MOEP_TRY(moep_cublaslt_find(&functions));
  *version_out = functions.get_version();
  return moeplan_status_success;
}
