/* What the benchmark ran on, and how fast it reads memory. */

#ifndef MOEPLAN_TOOLS_BENCH_MACHINE_H_
#define MOEPLAN_TOOLS_BENCH_MACHINE_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/tool_error.h"

struct tool_machine {
  char date[32];    /* UTC */
  char gpu[256];    /* "NVIDIA H200"; "": the host */
  char driver[64];  /* "580.159.04"; "": not known */
  int cuda_runtime; /* 13000; 0: the host */
  uint32_t sm_count;
  size_t l2_bytes; /* 0: the host's, which is not looked at */
  size_t stream_bytes;
  double bytes_per_second; /* median over reads of stream_bytes */
};

/* Reads 8 GiB, or a quarter of what is free, several times. On the host: 64 MiB,
 * by one thread. */
enum tool_status tool_machine_measure(const char* device,
                                      struct tool_machine* machine_out,
                                      struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_MACHINE_H_ */
