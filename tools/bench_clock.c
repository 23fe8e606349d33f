#define _GNU_SOURCE

#include "tools/bench_clock.h"

#include <stdlib.h>
#include <time.h>

static int compare_doubles(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return (a > b) - (a < b);
}

struct tool_spread tool_spread_of(double* samples, size_t count) {
  qsort(samples, count, sizeof(*samples), compare_doubles);
  return (struct tool_spread){
      .median = (samples[count / 2] + samples[(count - 1) / 2]) / 2.0,
      .min = samples[0],
      .p10 = samples[(count - 1) / 10],
      .p90 = samples[count - 1 - (count - 1) / 10],
      .samples = count,
  };
}

double tool_now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum tool_status tool_stopwatch_open(struct tool_stopwatch* watch_out,
                                     const struct tool_memory* memory,
                                     struct tool_error* error) {
  struct tool_stopwatch watch = {.memory = memory, .error = error};
  for (int i = 0; i < 2 && memory->stream != NULL; i++) {
    const enum tool_status status = tool_cuda_try(
        cudaEventCreate(&watch.events[i]), "create an event", error);
    if (status != tool_ok) {
      tool_stopwatch_close(&watch);
      return status;
    }
  }
  *watch_out = watch;
  return tool_ok;
}

void tool_stopwatch_close(struct tool_stopwatch* watch) {
  for (int i = 0; i < 2; i++) {
    if (watch->events[i] != NULL) cudaEventDestroy(watch->events[i]);
    watch->events[i] = NULL;
  }
}

enum tool_status tool_stopwatch_start(struct tool_stopwatch* watch) {
  if (watch->events[0] != NULL) {
    return tool_cuda_try(
        cudaEventRecord(watch->events[0], watch->memory->stream),
        "record an event", watch->error);
  }
  watch->start = tool_now_seconds();
  return tool_ok;
}

enum tool_status tool_stopwatch_stop(struct tool_stopwatch* watch,
                                     double* seconds_out) {
  if (watch->events[0] == NULL) {
    *seconds_out = tool_now_seconds() - watch->start;
    return tool_ok;
  }
  float milliseconds = 0.0f;
  cudaError_t result = cudaEventRecord(watch->events[1], watch->memory->stream);
  if (result == cudaSuccess) result = cudaEventSynchronize(watch->events[1]);
  if (result == cudaSuccess) {
    result =
        cudaEventElapsedTime(&milliseconds, watch->events[0], watch->events[1]);
  }
  if (result == cudaSuccess) *seconds_out = (double)milliseconds * 1e-3;
  return tool_cuda_try(result, "time the GPU", watch->error);
}
