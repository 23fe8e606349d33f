#include "tools/output_json.h"

#include "tools/output.h"

enum tool_status tool_output_json(json_t* document, struct tool_error* error) {
  struct tool_output output;
  enum tool_status status = tool_output_open(&output, error);
  if (status == tool_ok) {
    if (document == NULL ||
        json_dumpf(document, output.stream,
                   JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0) {
      status = tool_fail(error, "cannot write JSON: out of memory");
    }
    fputc('\n', output.stream);
    status = tool_output_close(&output, status, error);
  }
  json_decref(document);
  return status;
}

json_t* tool_spread_json(const struct tool_spread* spread) {
  if (spread->samples == 0) return json_null();
  return json_pack("{s:f, s:f, s:f, s:f, s:I}", "median", spread->median, "min",
                   spread->min, "p10", spread->p10, "p90", spread->p90,
                   "samples", (json_int_t)spread->samples);
}
