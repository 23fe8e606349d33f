/* One site ready to run on a device, and what is done with it at each row
 * count: plan, graph, replay over the file's rows, compare, time. */

#ifndef MOEPLAN_TOOLS_REPLAY_H_
#define MOEPLAN_TOOLS_REPLAY_H_

#include <moeplan.h>

#include "tools/device_memory.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/site.h"

struct tool_replay {
  const struct tool_site* site;
  const uint8_t* source; /* [source_rows, H] bf16, aligned to nothing */
  uint32_t source_rows;
  struct tool_memory memory;
  struct tool_session session;
  struct moeplan_binding binding; /* without live_rows */
  void* x;                        /* what the binding points to, writable */
  void* blob;                     /* the site's, in host memory */
  int32_t* live_rows;
  uint16_t* host_y;  /* [max_rows, H] bf16 */
  int32_t* host_ids; /* [max_rows, k] */
};

/* Make the site ready for up to max_rows rows. On failure nothing is held. The
 * replay must not move. */
enum tool_status tool_replay_open(struct tool_replay* replay,
                                  const struct tool_args* args,
                                  struct tool_site* site, uint32_t max_rows,
                                  struct tool_error* error);
void tool_replay_close(struct tool_replay* replay);

/* The plan for exactly `rows` rows. The source's rows are taken in chunks of
 * that many; a last chunk that is shorter runs with live_rows. More rows than
 * the source has are its rows again from the start. */
enum tool_status tool_replay_rows(struct tool_replay* replay, uint32_t rows,
                                  struct tool_result* result_out);

#endif /* MOEPLAN_TOOLS_REPLAY_H_ */
