#define _GNU_SOURCE

#include "tools/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum tool_status tool_output_open(struct tool_output* output,
                                  struct tool_error* error) {
  *output = (struct tool_output){.bytes = 0};
  output->stream = open_memstream(&output->text, &output->bytes);
  if (output->stream != NULL) return tool_ok;
  return tool_fail(error, "cannot write the results: out of memory");
}

enum tool_status tool_output_close(struct tool_output* output,
                                   enum tool_status status,
                                   struct tool_error* error) {
  if (fclose(output->stream) != 0 && status == tool_ok) {
    status = tool_fail(error, "cannot write the results: out of memory");
  }
  if (status == tool_ok &&
      (fwrite(output->text, 1, output->bytes, stdout) != output->bytes ||
       fflush(stdout) != 0)) {
    status = tool_fail(error, "cannot write %zu bytes to stdout: %s",
                       output->bytes, strerror(errno));
  }
  free(output->text);
  return status;
}
