#include "lib/hooks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SENTENCE_BYTES = 512 };

static void* default_allocate(void* context, size_t bytes) {
  (void)context;
  return malloc(bytes);
}

static void default_deallocate(void* context, void* pointer) {
  (void)context;
  free(pointer);
}

enum moeplan_status moep_hooks_read(const struct moeplan_hooks* hooks,
                                    struct moeplan_hooks* hooks_out) {
  struct moeplan_hooks copy = MOEPLAN_HOOKS_INIT;
  if (hooks != NULL) {
    if (hooks->struct_bytes != sizeof(*hooks) ||
        (hooks->allocate == NULL) != (hooks->deallocate == NULL)) {
      return moeplan_status_invalid_argument;
    }
    copy = *hooks;
  }
  if (copy.allocate == NULL) {
    copy.allocate = default_allocate;
    copy.deallocate = default_deallocate;
  }
  *hooks_out = copy;
  return moeplan_status_success;
}

void* moep_allocate(const struct moeplan_hooks* hooks, size_t bytes) {
  void* pointer = hooks->allocate(hooks->context, bytes);
  if (pointer == NULL) {
    moep_log(hooks, moeplan_log_error,
             "cannot allocate %zu bytes of host memory: the allocator has none",
             bytes);
  }
  return pointer;
}

void moep_release(const struct moeplan_hooks* hooks, void* pointer) {
  if (pointer != NULL) hooks->deallocate(hooks->context, pointer);
}

void moep_log(const struct moeplan_hooks* hooks, enum moeplan_log_level level,
              const char* format, ...) {
  if (hooks->log == NULL) return;
  char text[MAX_SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  hooks->log(hooks->context, level, text);
}
