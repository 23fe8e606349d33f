/* The numerics table as text and as JSON. */

#include <jansson.h>
#include <moeplan.h>
#include <stdio.h>

#include "tools/bench_numerics.h"
#include "tools/output.h"

/* What a line compares, and the same line where the design comes from: grouped
 * kernels there round each weight to bf16. */
static const struct line {
  const char *of, *against;
  struct tool_numerics_errors origin;
} lines[TOOL_NUMERICS_LINES] = {
    [tool_numerics_grouped_exact] = {"grouped",
                                     "exact",
                                     {1.462067, 0.003306, 0.128986}},
    [tool_numerics_gemv_exact] = {"GEMV",
                                  "exact",
                                  {0.999542, 0.002260, 0.003889}},
    [tool_numerics_grouped_rounded] = {"grouped",
                                       "bf16 weights",
                                       {0.998566, 0.002258, 0.003888}},
    [tool_numerics_grouped_gemv] = {"grouped",
                                    "GEMV",
                                    {2.000000, 0.004522, 0.130725}},
};

enum tool_status tool_numerics_table(const struct tool_numerics_report* report,
                                     struct tool_error* error) {
  struct tool_output output;
  const enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  FILE* out = output.stream;
  fprintf(out,
          "device    %s\n"
          "site      hidden %d, %d experts of %d, top-%d, %d rows; fixed seed\n"
          "outputs   %zu of down, before the combine\n\n",
          report->device, TOOL_NUMERICS_HIDDEN, TOOL_NUMERICS_EXPERTS,
          TOOL_NUMERICS_INTER, TOOL_NUMERICS_TOPK, TOOL_NUMERICS_ROWS,
          report->outputs);
  fprintf(out, "%-8s %-12s %9s %9s %9s   %9s %9s %9s\n", "of", "against",
          "max_abs", "/largest", "max_rel", "origin's", "/largest", "max_rel");
  for (size_t i = 0; i < TOOL_NUMERICS_LINES; i++) {
    const struct tool_numerics_errors* ours = &report->lines[i];
    const struct tool_numerics_errors* origin = &lines[i].origin;
    fprintf(out, "%-8s %-12s %9.6f %9.6f %9.6f   %9.6f %9.6f %9.6f\n",
            lines[i].of, lines[i].against, ours->max_abs, ours->of_largest,
            ours->max_rel, origin->max_abs, origin->of_largest,
            origin->max_rel);
  }
  fprintf(out,
          "\nmax_rel: over outputs above 2^-8 of the largest; against exact at "
          "most %.4f\n"
          "different %zu outputs of grouped and GEMV\n",
          TOOL_NUMERICS_BAR, report->different);
  return tool_output_close(&output, tool_ok, error);
}

static json_t* errors_json(const struct tool_numerics_errors* errors) {
  return json_pack("{s:f, s:f, s:f}", "max_abs", errors->max_abs, "of_largest",
                   errors->of_largest, "max_rel", errors->max_rel);
}

static json_t* report_json(const struct tool_numerics_report* report) {
  json_t* table = json_array();
  for (size_t i = 0; i < TOOL_NUMERICS_LINES; i++) {
    json_t* line =
        json_pack("{s:s, s:s, s:o, s:o}", "of", lines[i].of, "against",
                  lines[i].against, "errors", errors_json(&report->lines[i]),
                  "origin", errors_json(&lines[i].origin));
    if (json_array_append_new(table, line) != 0) {
      json_decref(table);
      return NULL;
    }
  }
  return json_pack(
      "{s:s, s:i, s:s, s:{s:i, s:i, s:i, s:i, s:i}, s:f, s:I, s:I, s:o}",
      "moeplan", moeplan_version_string(), "numerics_version",
      MOEPLAN_NUMERICS_VERSION, "device", report->device, "site", "hidden",
      TOOL_NUMERICS_HIDDEN, "intermediate", TOOL_NUMERICS_INTER, "experts",
      TOOL_NUMERICS_EXPERTS, "top_k", TOOL_NUMERICS_TOPK, "rows",
      TOOL_NUMERICS_ROWS, "max_rel_bar", TOOL_NUMERICS_BAR, "outputs",
      (json_int_t)report->outputs, "different", (json_int_t)report->different,
      "lines", table);
}

enum tool_status tool_numerics_json(const struct tool_numerics_report* report,
                                    struct tool_error* error) {
  struct tool_output output;
  enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  json_t* document = report_json(report);
  if (document == NULL ||
      json_dumpf(document, output.stream,
                 JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0) {
    status = tool_fail(error, "cannot write JSON: out of memory");
  }
  json_decref(document);
  fputc('\n', output.stream);
  return tool_output_close(&output, status, error);
}
