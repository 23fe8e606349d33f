/* A site of random weights, several times over: each copy has its own memory and
 * its own bytes, made on the device. One rank's part of a site holds the bytes that
 * the whole site has there. */

#ifndef MOEPLAN_TOOLS_BENCH_SITE_H_
#define MOEPLAN_TOOLS_BENCH_SITE_H_

#include <moeplan.h>

#include "tools/bench_args.h"
#include "tools/device_memory.h"
#include "tools/ranks.h"
#include "tools/session.h"
#include "tools/tool_error.h"

struct tool_bench_site {
  size_t bytes; /* of one copy's weights */
  uint32_t copies;
  void* blobs[TOOL_BENCH_MAX_SETS];      /* binding.site of each copy */
  void* host_blobs[TOOL_BENCH_MAX_SETS]; /* binding.host_site */
};

/* The blobs in host memory; all else is the device memory's. */
void tool_bench_site_free(struct tool_bench_site* site);

/* Bytes that a copy takes on this rank of the whole site. */
size_t tool_bench_site_bytes(const struct moeplan_config* whole,
                             const struct tool_rank* rank);

enum tool_status tool_bench_site_place(const struct tool_session* session,
                                       const struct moeplan_config* whole,
                                       const struct tool_rank* rank,
                                       struct tool_memory* memory,
                                       uint32_t copies,
                                       struct tool_bench_site* site_out);

#endif /* MOEPLAN_TOOLS_BENCH_SITE_H_ */
