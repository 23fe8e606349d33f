/* Time, and samples of it. */

#ifndef MOEPLAN_TOOLS_BENCH_CLOCK_H_
#define MOEPLAN_TOOLS_BENCH_CLOCK_H_

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "tools/device_memory.h"
#include "tools/tool_error.h"

struct tool_spread {
  double median, min, p10, p90; /* seconds */
  size_t samples;
};

/* Sorts the samples, of which there is one at least. */
struct tool_spread tool_spread_of(double* samples, size_t count);

double tool_now_seconds(void); /* monotonic */

/* Times what runs between start and stop: by events of the memory's stream, on
 * the host by the clock. */
struct tool_stopwatch {
  const struct tool_memory* memory;
  struct tool_error* error;
  cudaEvent_t events[2]; /* NULL on the host */
  double start;
};

enum tool_status tool_stopwatch_open(struct tool_stopwatch* watch_out,
                                     const struct tool_memory* memory,
                                     struct tool_error* error);
void tool_stopwatch_close(struct tool_stopwatch* watch);
enum tool_status tool_stopwatch_start(struct tool_stopwatch* watch);
/* Waits for the work. */
enum tool_status tool_stopwatch_stop(struct tool_stopwatch* watch,
                                     double* seconds_out);

#endif /* MOEPLAN_TOOLS_BENCH_CLOCK_H_ */
