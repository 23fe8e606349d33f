#define _GNU_SOURCE

#include "tools/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

/* The few functions and values of NCCL 2 that are used, written out: its header
 * is not in the CUDA toolkit. They have stood since 2.0. */
typedef struct ncclComm* nccl_communicator;

enum { NCCL_SUCCESS = 0, NCCL_FLOAT32 = 7, NCCL_SUM = 0, NCCL_MAJOR = 2 };

struct tool_nccl_calls {
  int (*get_version)(int* version);
  const char* (*get_error_string)(int result);
  int (*comm_init_all)(nccl_communicator* communicators, int devices,
                       const int* device_list);
  int (*comm_destroy)(nccl_communicator communicator);
  int (*all_reduce)(const void* from, void* to, size_t count, int type,
                    int operation, nccl_communicator communicator,
                    cudaStream_t stream);
};

static enum tool_status find_calls(void* library, struct tool_nccl_calls* calls,
                                   struct tool_error* error) {
  const struct {
    const char* name;
    void** to;
  } functions[] = {
      {"ncclGetVersion", (void**)&calls->get_version},
      {"ncclGetErrorString", (void**)&calls->get_error_string},
      {"ncclCommInitAll", (void**)&calls->comm_init_all},
      {"ncclCommDestroy", (void**)&calls->comm_destroy},
      {"ncclAllReduce", (void**)&calls->all_reduce},
  };
  for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
    *functions[i].to = dlsym(library, functions[i].name);
    if (*functions[i].to != NULL) continue;
    return tool_fail(error, "cannot use NCCL: it has no function %s",
                     functions[i].name);
  }
  return tool_ok;
}

static enum tool_status check(const struct tool_nccl_calls* calls, int result,
                              const char* what, struct tool_error* error) {
  if (result == NCCL_SUCCESS) return tool_ok;
  return tool_fail(error, "cannot %s: NCCL error %d, %s", what, result,
                   calls->get_error_string(result));
}

enum tool_status tool_nccl_open(uint32_t ranks, struct tool_nccl* nccl_out,
                                struct tool_error* error) {
  static struct tool_nccl_calls calls;
  const char* named = getenv("MOEPLAN_NCCL");
  const char* path = named != NULL && *named != '\0' ? named : "libnccl.so.2";
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  /* Stays open: it has threads and GPU code of its own. */
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    return tool_fail(
        error,
        "cannot open NCCL: %s; LD_LIBRARY_PATH or MOEPLAN_NCCL=PATH "
        "names it",
        dlerror());
  }
  enum tool_status status = find_calls(library, &calls, error);
  if (status != tool_ok) return status;
  struct tool_nccl nccl = {.calls = &calls, .ranks = ranks};
  status =
      check(&calls, calls.get_version(&nccl.version), "ask its version", error);
  if (status != tool_ok) return status;
  if (nccl.version / 10000 != NCCL_MAJOR) {
    return tool_fail(error, "cannot use NCCL %d: must be version %d",
                     nccl.version, NCCL_MAJOR);
  }
  nccl_communicator communicators[TOOL_MAX_RANKS];
  status = check(&calls, calls.comm_init_all(communicators, (int)ranks, NULL),
                 "connect the GPUs", error);
  if (status != tool_ok) return status;
  for (uint32_t i = 0; i < ranks; i++) nccl.communicators[i] = communicators[i];
  *nccl_out = nccl;
  return tool_ok;
}

void tool_nccl_close(struct tool_nccl* nccl) {
  for (uint32_t i = 0; i < nccl->ranks; i++) {
    nccl->calls->comm_destroy(nccl->communicators[i]);
  }
  nccl->ranks = 0;
}

enum tool_status tool_nccl_add_up(const struct tool_nccl* nccl, uint32_t rank,
                                  float* buffer, size_t count,
                                  cudaStream_t stream,
                                  struct tool_error* error) {
  return check(
      nccl->calls,
      nccl->calls->all_reduce(buffer, buffer, count, NCCL_FLOAT32, NCCL_SUM,
                              nccl->communicators[rank], stream),
      "add up the ranks", error);
}
