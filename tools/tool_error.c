#include "tools/tool_error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static void write_sentence(struct tool_error* error, const char* format,
                           va_list arguments) {
  if (error->text[0] != '\0') return;
  vsnprintf(error->text, sizeof(error->text), format, arguments);
  for (size_t i = 0; error->text[i] != '\0'; i++) {
    const unsigned char byte = (unsigned char)error->text[i];
    if (byte < 0x20 || byte == 0x7F) error->text[i] = '?';
  }
}

enum tool_status tool_fail(struct tool_error* error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_sentence(error, format, arguments);
  va_end(arguments);
  return tool_failed;
}

enum tool_status tool_refuse(struct tool_error* error, const char* format,
                             ...) {
  va_list arguments;
  va_start(arguments, format);
  write_sentence(error, format, arguments);
  va_end(arguments);
  return tool_usage;
}
