#include "tools/tool_error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void tool_error_write(struct tool_error* error, const char* format, ...) {
  if (error->text[0] != '\0') return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof(error->text), format, arguments);
  va_end(arguments);
  for (size_t i = 0; error->text[i] != '\0'; i++) {
    const unsigned char byte = (unsigned char)error->text[i];
    if (byte < 0x20 || byte == 0x7F) error->text[i] = '?';
  }
}
