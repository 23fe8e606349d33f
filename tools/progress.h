/* One line on a terminal that says how far a long load is. Silent where the
 * descriptor is no terminal, and for loads that end soon. */

#ifndef MOEPLAN_TOOLS_PROGRESS_H_
#define MOEPLAN_TOOLS_PROGRESS_H_

#include <stddef.h>
#include <stdint.h>

struct tool_progress {
  int descriptor; /* -1: silent */
  double next;    /* seconds: nothing is drawn before */
  int drawn;      /* something is on the line */
  size_t site, num_sites;
  uint64_t bytes; /* checked so far, over all sites */
};

enum { TOOL_PROGRESS_DELAY_MS = 500, TOOL_PROGRESS_STEP_MS = 100 };

/* Nothing is drawn in the first `delay_ms`. */
void tool_progress_open(struct tool_progress* progress, int descriptor,
                        uint32_t delay_ms);

/* `progress` may be NULL in these. */
void tool_progress_site(struct tool_progress* progress, size_t site,
                        size_t num_sites);
void tool_progress_add(struct tool_progress* progress, uint64_t bytes);

/* Clears the line. */
void tool_progress_close(struct tool_progress* progress);

#endif /* MOEPLAN_TOOLS_PROGRESS_H_ */
