/* Stage 0: the caller's allocator and log; the only malloc. */

#ifndef MOEPLAN_LIB_HOOKS_H_
#define MOEPLAN_LIB_HOOKS_H_

#include "lib/moeplan.h"

/* Copy the caller's hooks (NULL: all defaults). A wrong struct_bytes or one
 * allocator function without the other is invalid_argument; nothing is logged,
 * since there is no trusted log yet. */
enum moeplan_status moep_hooks_read(const struct moeplan_hooks* hooks,
                                    struct moeplan_hooks* hooks_out);

/* NULL when there is no memory (logged). */
void* moep_allocate(const struct moeplan_hooks* hooks, size_t bytes);
void moep_release(const struct moeplan_hooks* hooks, void* pointer);

__attribute__((format(printf, 3, 4))) void moep_log(
    const struct moeplan_hooks* hooks, enum moeplan_log_level level,
    const char* format, ...);

/* Log one sentence, return the status. */
#define MOEP_REFUSE(hooks, status, ...) \
  (moep_log(hooks, moeplan_log_error, __VA_ARGS__), moeplan_status_##status)

/* Pass a failure on. Only while nothing is owned. */
#define MOEP_TRY(call)                                  \
  do {                                                  \
    const enum moeplan_status moep_try_status = (call); \
    if (moep_try_status != moeplan_status_success) {    \
      return moep_try_status;                           \
    }                                                   \
  } while (0)

/* A public struct's size: this version knows one. */
#define MOEP_CHECK_STRUCT(hooks, object)                                      \
  do {                                                                        \
    if ((object)->struct_bytes != sizeof(*(object))) {                        \
      return MOEP_REFUSE(hooks, invalid_argument,                             \
                         "cannot read %s: struct_bytes is %zu, must be %zu",  \
                         #object, (object)->struct_bytes, sizeof(*(object))); \
    }                                                                         \
  } while (0)

#endif /* MOEPLAN_LIB_HOOKS_H_ */
