#define _GNU_SOURCE

#include "tools/device_memory.h"

#include <stdlib.h>
#include <string.h>

struct tool_memory_calls {
  void* (*allocate)(size_t bytes, struct tool_error* error);
  void (*deallocate)(void* block);
  enum tool_status (*copy)(void* to, const void* from, size_t bytes,
                           enum cudaMemcpyKind kind, cudaStream_t stream,
                           struct tool_error* error);
  enum tool_status (*fill)(void* to, int byte, size_t bytes,
                           cudaStream_t stream, struct tool_error* error);
  enum tool_status (*wait)(cudaStream_t stream, struct tool_error* error);
  enum tool_status (*place)(struct tool_memory* memory, struct tool_site* site,
                            struct tool_error* error);
};

static size_t round_up(size_t bytes) {
  const size_t mask = TOOL_BLOCK_ALIGNMENT - 1;
  return (bytes + mask) & ~mask;
}

/* ---- host ---- */

static void* host_allocate(size_t bytes, struct tool_error* error) {
  void* block = aligned_alloc(TOOL_BLOCK_ALIGNMENT, bytes);
  if (block == NULL) {
    tool_fail(error, "cannot allocate %zu bytes: out of host memory", bytes);
  }
  return block;
}

static enum tool_status host_copy(void* to, const void* from, size_t bytes,
                                  enum cudaMemcpyKind kind, cudaStream_t stream,
                                  struct tool_error* error) {
  (void)kind;
  (void)stream;
  (void)error;
  memcpy(to, from, bytes);
  return tool_ok;
}

static enum tool_status host_fill(void* to, int byte, size_t bytes,
                                  cudaStream_t stream,
                                  struct tool_error* error) {
  (void)stream;
  (void)error;
  memset(to, byte, bytes);
  return tool_ok;
}

static enum tool_status host_wait(cudaStream_t stream,
                                  struct tool_error* error) {
  (void)stream;
  (void)error;
  return tool_ok;
}

/* The slots hold the map's addresses already. A header of an odd length puts
 * every tensor at an odd address, where bf16 cannot be read. */
static enum tool_status host_place(struct tool_memory* memory,
                                   struct tool_site* site,
                                   struct tool_error* error) {
  (void)memory;
  for (size_t i = 0; i < site->num_pieces; i++) {
    const struct tool_tensor* tensor = site->pieces[i].tensor;
    const uintptr_t size = tool_dtype_bits(tensor->dtype) / 8;
    if ((uintptr_t)tensor->data % size == 0) continue;
    return tool_fail(error,
                     "cannot use %s in place: tensor %s: expected an address "
                     "that is a multiple of %zu, found %p",
                     tensor->file->path, tensor->name, (size_t)size,
                     (const void*)tensor->data);
  }
  return tool_ok;
}

static const struct tool_memory_calls host_calls = {
    host_allocate, free, host_copy, host_fill, host_wait, host_place};

/* ---- CUDA ---- */

enum tool_status tool_cuda_try(cudaError_t result, const char* what,
                               struct tool_error* error) {
  if (result == cudaSuccess) return tool_ok;
  return tool_fail(error, "cannot %s: CUDA error %d, %s", what, (int)result,
                   cudaGetErrorString(result));
}

static void* cuda_allocate(size_t bytes, struct tool_error* error) {
  void* block = NULL;
  const cudaError_t result = cudaMalloc(&block, bytes);
  if (result == cudaSuccess) return block;
  tool_fail(error, "cannot allocate %zu bytes on the GPU: CUDA error %d, %s",
            bytes, (int)result, cudaGetErrorString(result));
  return NULL;
}

static void cuda_deallocate(void* block) { cudaFree(block); }

static enum tool_status cuda_wait(cudaStream_t stream,
                                  struct tool_error* error) {
  return tool_cuda_try(cudaStreamSynchronize(stream), "run on the GPU", error);
}

static enum tool_status cuda_copy(void* to, const void* from, size_t bytes,
                                  enum cudaMemcpyKind kind, cudaStream_t stream,
                                  struct tool_error* error) {
  const enum tool_status status =
      tool_cuda_try(cudaMemcpyAsync(to, from, bytes, kind, stream),
                    "copy to or from the GPU", error);
  return status != tool_ok ? status : cuda_wait(stream, error);
}

static enum tool_status cuda_fill(void* to, int byte, size_t bytes,
                                  cudaStream_t stream,
                                  struct tool_error* error) {
  return tool_cuda_try(cudaMemsetAsync(to, byte, bytes, stream),
                       "fill memory of the GPU", error);
}

static enum tool_status cuda_place(struct tool_memory* memory,
                                   struct tool_site* site,
                                   struct tool_error* error) {
  size_t total = 0;
  for (size_t i = 0; i < site->num_pieces; i++) {
    total += round_up((size_t)site->pieces[i].tensor->bytes);
  }
  void* arena = NULL;
  enum tool_status status = tool_memory_allocate(memory, total, &arena, error);
  if (status != tool_ok) return status;
  char* at = arena;
  for (size_t i = 0; i < site->num_pieces; i++) {
    const struct tool_piece* piece = &site->pieces[i];
    const size_t bytes = (size_t)piece->tensor->bytes;
    status = tool_tensor_check(piece->tensor, error);
    if (status != tool_ok) return status;
    status = tool_memory_upload(memory, at, piece->tensor->data, bytes, error);
    if (status != tool_ok) return status;
    const void* address = at;
    memcpy(piece->slot, &address, sizeof(address));
    at += round_up(bytes);
  }
  return tool_ok;
}

static const struct tool_memory_calls cuda_calls = {
    cuda_allocate, cuda_deallocate, cuda_copy,
    cuda_fill,     cuda_wait,       cuda_place};

/* ---- either ---- */

enum tool_status tool_memory_open(const char* device,
                                  struct tool_memory* memory_out,
                                  struct tool_error* error) {
  if (strcmp(device, "host") == 0) {
    *memory_out =
        (struct tool_memory){.calls = &host_calls, .replays_per_sample = 1};
    return tool_ok;
  }
  struct tool_memory memory = {.calls = &cuda_calls, .replays_per_sample = 20};
  const int index = atoi(device + strlen("cuda:")); /* checked by args.c */
  enum tool_status status =
      tool_cuda_try(cudaSetDevice(index), "use the GPU of --device", error);
  if (status != tool_ok) return status;
  status = tool_cuda_try(
      cudaStreamCreateWithFlags(&memory.stream, cudaStreamNonBlocking),
      "create a stream", error);
  if (status == tool_ok) *memory_out = memory;
  return status;
}

void tool_memory_close(struct tool_memory* memory) {
  if (memory->calls == NULL) return;
  for (size_t i = 0; i < memory->num_blocks; i++) {
    memory->calls->deallocate(memory->blocks[i]);
  }
  if (memory->stream != NULL) cudaStreamDestroy(memory->stream);
  *memory = (struct tool_memory){.num_blocks = 0};
}

enum tool_status tool_memory_allocate(struct tool_memory* memory, size_t bytes,
                                      void** block_out,
                                      struct tool_error* error) {
  if (memory->num_blocks == TOOL_MAX_BLOCKS) {
    return tool_fail(error,
                     "cannot allocate block %d: the tool holds at most %d",
                     TOOL_MAX_BLOCKS + 1, TOOL_MAX_BLOCKS);
  }
  void* block =
      memory->calls->allocate(round_up(bytes == 0 ? 1 : bytes), error);
  if (block == NULL) return tool_failed;
  memory->blocks[memory->num_blocks] = block;
  memory->num_blocks++;
  *block_out = block;
  return tool_ok;
}

enum tool_status tool_memory_upload(const struct tool_memory* memory, void* to,
                                    const void* from, size_t bytes,
                                    struct tool_error* error) {
  return memory->calls->copy(to, from, bytes, cudaMemcpyHostToDevice,
                             memory->stream, error);
}

enum tool_status tool_memory_download(const struct tool_memory* memory,
                                      void* to, const void* from, size_t bytes,
                                      struct tool_error* error) {
  return memory->calls->copy(to, from, bytes, cudaMemcpyDeviceToHost,
                             memory->stream, error);
}

enum tool_status tool_memory_fill(const struct tool_memory* memory, void* to,
                                  int byte, size_t bytes,
                                  struct tool_error* error) {
  return memory->calls->fill(to, byte, bytes, memory->stream, error);
}

enum tool_status tool_memory_wait(const struct tool_memory* memory,
                                  struct tool_error* error) {
  return memory->calls->wait(memory->stream, error);
}

enum tool_status tool_memory_place(struct tool_memory* memory,
                                   struct tool_site* site,
                                   struct tool_error* error) {
  return memory->calls->place(memory, site, error);
}
