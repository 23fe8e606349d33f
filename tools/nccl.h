/* NCCL, opened at run time: only `moeplan parallel` on GPUs wants it, so neither
 * the program nor its build needs it. */

#ifndef MOEPLAN_TOOLS_NCCL_H_
#define MOEPLAN_TOOLS_NCCL_H_

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/ranks.h"
#include "tools/tool_error.h"

struct tool_nccl_calls;

struct tool_nccl {
  const struct tool_nccl_calls* calls;
  int version; /* 22809 for 2.28.9 */
  uint32_t ranks;
  void* communicators[TOOL_MAX_RANKS];
};

/* One communicator for each of the GPUs 0 .. ranks - 1. libnccl.so.2 is opened by
 * MOEPLAN_NCCL, a path, if that is set; else by the loader's search path. Sets
 * NCCL_NVLS_ENABLE=0 first: no NVLink multicast. */
enum tool_status tool_nccl_open(uint32_t ranks, struct tool_nccl* nccl_out,
                                struct tool_error* error);
/* Graphs that hold its work are destroyed before. */
void tool_nccl_close(struct tool_nccl* nccl);

/* Add the ranks' buffers up, float32, in place. Every rank calls it, each on a
 * thread of its own with its GPU current; in a capture it becomes nodes of it. */
enum tool_status tool_nccl_add_up(const struct tool_nccl* nccl, uint32_t rank,
                                  float* buffer, size_t count,
                                  cudaStream_t stream,
                                  struct tool_error* error);

#endif /* MOEPLAN_TOOLS_NCCL_H_ */
