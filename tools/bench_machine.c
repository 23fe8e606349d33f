#define _GNU_SOURCE

#include "tools/bench_machine.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/bench_clock.h"
#include "tools/bench_fill.h"
#include "tools/stream.h"

enum { READS = 21, HOST_STREAM_BYTES = 64 << 20 };

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..." */
static void read_driver(struct tool_machine* machine) {
  char line[512] = "";
  FILE* file = fopen("/proc/driver/nvidia/version", "r");
  if (file == NULL) return;
  if (fgets(line, sizeof(line), file) == NULL) line[0] = '\0';
  fclose(file);
  char* rest = NULL;
  for (char* word = strtok_r(line, " \t\n", &rest); word != NULL;
       word = strtok_r(NULL, " \t\n", &rest)) {
    const size_t length = strlen(word);
    if (strspn(word, "0123456789.") != length || strchr(word, '.') == NULL) {
      continue;
    }
    snprintf(machine->driver, sizeof(machine->driver), "%s", word);
    return;
  }
}

static enum tool_status describe_gpu(struct tool_machine* machine,
                                     struct tool_error* error) {
  struct cudaDeviceProp properties;
  size_t free_bytes = 0, total_bytes = 0;
  int device = 0;
  cudaError_t result = cudaGetDevice(&device);
  if (result == cudaSuccess) {
    result = cudaGetDeviceProperties(&properties, device);
  }
  if (result == cudaSuccess) {
    result = cudaRuntimeGetVersion(&machine->cuda_runtime);
  }
  if (result == cudaSuccess) result = cudaMemGetInfo(&free_bytes, &total_bytes);
  const enum tool_status status =
      tool_cuda_try(result, "describe the GPU", error);
  if (status != tool_ok) return status;
  const size_t wanted = (size_t)8 << 30;
  const size_t most = free_bytes / 4 / 4096 * 4096;
  machine->stream_bytes = most < wanted ? most : wanted;
  snprintf(machine->gpu, sizeof(machine->gpu), "%s", properties.name);
  machine->sm_count = (uint32_t)properties.multiProcessorCount;
  machine->l2_bytes = (size_t)properties.l2CacheSize;
  read_driver(machine);
  return tool_ok;
}

static enum tool_status read_all(const struct tool_machine* machine,
                                 const struct tool_memory* memory,
                                 const void* from, void* sink,
                                 struct tool_error* error) {
  if (memory->stream != NULL) {
    return tool_cuda_try(
        tool_stream_read(from, machine->stream_bytes, 2 * machine->sm_count,
                         sink, memory->stream),
        "read memory of the GPU", error);
  }
  const uint64_t* words = from;
  uint64_t sum = 0;
  for (size_t i = 0; i < machine->stream_bytes / sizeof(*words); i++) {
    sum ^= words[i];
  }
  *(volatile uint64_t*)sink = sum;
  return tool_ok;
}

static enum tool_status measure_stream(struct tool_machine* machine,
                                       struct tool_memory* memory,
                                       struct tool_error* error) {
  void* buffer = NULL;
  void* sink = NULL;
  double samples[READS];
  struct tool_stopwatch watch;
  enum tool_status status =
      tool_memory_allocate(memory, machine->stream_bytes, &buffer, error);
  if (status == tool_ok) {
    status = tool_memory_allocate(memory, sizeof(uint64_t), &sink, error);
  }
  if (status == tool_ok) {
    status = tool_bench_fill(memory, buffer, machine->stream_bytes,
                             tool_words_e2m1, 0, error);
  }
  if (status != tool_ok) return status;
  status = read_all(machine, memory, buffer, sink, error); /* warm-up */
  if (status != tool_ok) return status;
  status = tool_stopwatch_open(&watch, memory, error);
  if (status != tool_ok) return status;
  for (int i = 0; i < READS && status == tool_ok; i++) {
    status = tool_stopwatch_start(&watch);
    if (status != tool_ok) break;
    status = read_all(machine, memory, buffer, sink, error);
    if (status != tool_ok) break;
    status = tool_stopwatch_stop(&watch, &samples[i]);
  }
  tool_stopwatch_close(&watch);
  if (status != tool_ok) return status;
  machine->bytes_per_second =
      (double)machine->stream_bytes / tool_spread_of(samples, READS).median;
  return tool_ok;
}

enum tool_status tool_machine_measure(const char* device,
                                      struct tool_machine* machine_out,
                                      struct tool_error* error) {
  struct tool_machine machine = {.stream_bytes = HOST_STREAM_BYTES};
  struct tool_memory memory;
  const time_t now = time(NULL);
  struct tm utc;
  strftime(machine.date, sizeof(machine.date), "%Y-%m-%dT%H:%M:%SZ",
           gmtime_r(&now, &utc));
  enum tool_status status = tool_memory_open(device, &memory, error);
  if (status != tool_ok) return status;
  if (memory.stream != NULL) status = describe_gpu(&machine, error);
  if (status == tool_ok) status = measure_stream(&machine, &memory, error);
  tool_memory_close(&memory);
  if (status == tool_ok) *machine_out = machine;
  return status;
}
