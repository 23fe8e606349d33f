/* Memory of a device, "host" or "cuda:N". On the host weights stay in the map
 * and a copy is a memcpy; on CUDA weights go up once, into one arena, and
 * copies wait for the stream. Everything is freed together. */

#ifndef MOEPLAN_TOOLS_DEVICE_MEMORY_H_
#define MOEPLAN_TOOLS_DEVICE_MEMORY_H_

#include <moeplan.h>

#include "tools/site.h"
#include "tools/tool_error.h"

enum { TOOL_MAX_BLOCKS = 16, TOOL_BLOCK_ALIGNMENT = 256 };

struct tool_memory_calls;

struct tool_memory {
  const struct tool_memory_calls* calls; /* of the kind of device */
  cudaStream_t stream;                   /* NULL on the host */
  void* blocks[TOOL_MAX_BLOCKS];
  size_t num_blocks;
  uint32_t replays_per_sample; /* on CUDA several, or waiting is timed too */
};

/* Makes device N current for this thread. */
enum tool_status tool_memory_open(const char* device,
                                  struct tool_memory* memory_out,
                                  struct tool_error* error);
void tool_memory_close(struct tool_memory* memory);

/* A block of at least `bytes`, aligned to TOOL_BLOCK_ALIGNMENT. */
enum tool_status tool_memory_allocate(struct tool_memory* memory, size_t bytes,
                                      void** block_out,
                                      struct tool_error* error);

enum tool_status tool_memory_upload(const struct tool_memory* memory, void* to,
                                    const void* from, size_t bytes,
                                    struct tool_error* error);
enum tool_status tool_memory_download(const struct tool_memory* memory,
                                      void* to, const void* from, size_t bytes,
                                      struct tool_error* error);
enum tool_status tool_memory_fill(const struct tool_memory* memory, void* to,
                                  int byte, size_t bytes,
                                  struct tool_error* error);
enum tool_status tool_memory_wait(const struct tool_memory* memory,
                                  struct tool_error* error);

/* tool_ok, or a sentence: "cannot WHAT: CUDA error ...". */
enum tool_status tool_cuda_try(cudaError_t result, const char* what,
                               struct tool_error* error);

/* Make the device see the site's tensors: every piece's slot then holds a
 * device address. */
enum tool_status tool_memory_place(struct tool_memory* memory,
                                   struct tool_site* site,
                                   struct tool_error* error);

#endif /* MOEPLAN_TOOLS_DEVICE_MEMORY_H_ */
