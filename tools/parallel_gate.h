/* Where the threads of the ranks wait for each other, and learn together whether
 * one of them failed: a rank alone in a collective would wait for ever. */

#ifndef MOEPLAN_TOOLS_PARALLEL_GATE_H_
#define MOEPLAN_TOOLS_PARALLEL_GATE_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/tool_error.h"

struct tool_gate {
  pthread_barrier_t barrier;
  pthread_mutex_t mutex;
  bool failed;      /* some rank has, guarded by the mutex */
  uint32_t rounds;  /* over the sets in a batch: rank 0 writes, all read */
  uint32_t batches; /* after they have passed */
};

enum tool_status tool_gate_open(struct tool_gate* gate, uint32_t ranks,
                                struct tool_error* error);
void tool_gate_close(struct tool_gate* gate);

/* Wait for all ranks. `status` is how this one fared; the answer is tool_ok when
 * all were well, else this one's status, or tool_failed where it was well. */
enum tool_status tool_gate_pass(struct tool_gate* gate,
                                enum tool_status status);

#endif /* MOEPLAN_TOOLS_PARALLEL_GATE_H_ */
