#define _GNU_SOURCE

#include "tools/parallel_gate.h"

#include <string.h>

enum tool_status tool_gate_open(struct tool_gate* gate, uint32_t ranks,
                                struct tool_error* error) {
  *gate = (struct tool_gate){.mutex = PTHREAD_MUTEX_INITIALIZER};
  const int result = pthread_barrier_init(&gate->barrier, NULL, ranks);
  if (result == 0) return tool_ok;
  return tool_fail(error, "cannot make a barrier for %u ranks: %s", ranks,
                   strerror(result));
}

void tool_gate_close(struct tool_gate* gate) {
  pthread_barrier_destroy(&gate->barrier);
}

enum tool_status tool_gate_pass(struct tool_gate* gate,
                                enum tool_status status) {
  pthread_mutex_lock(&gate->mutex);
  gate->failed = gate->failed || status != tool_ok;
  pthread_mutex_unlock(&gate->mutex);
  pthread_barrier_wait(&gate->barrier);
  pthread_mutex_lock(&gate->mutex);
  const bool failed = gate->failed;
  pthread_mutex_unlock(&gate->mutex);
  /* Nobody fails at the next gate before all have looked. */
  pthread_barrier_wait(&gate->barrier);
  return failed && status == tool_ok ? tool_failed : status;
}
