/* The report as JSON: what the table shows, without rounding. A value that the
 * table shows as '-' is null. */

#include <jansson.h>
#include <math.h>

#include "tools/compare.h"
#include "tools/output_json.h"
#include "tools/report.h"

/* JSON knows neither NaN nor infinity. */
static json_t* real_or_null(bool known, double value) {
  return known && isfinite(value) ? json_real(value) : json_null();
}

/* Names and paths are bytes; JSON wants UTF-8. */
static json_t* text_or_null(const char* text) {
  json_t* string = text == NULL ? NULL : json_string(text);
  return string == NULL ? json_null() : string;
}

static json_t* routing_or_null(const struct tool_result* result) {
  if (result->routed_rows == 0) return json_null();
  return json_pack("{s:I, s:I}", "rows", (json_int_t)result->routed_rows,
                   "rows_differing", (json_int_t)result->rows_differing);
}

static json_t* result_json(const struct tool_result* result) {
  const struct moeplan_plan_info* info = &result->info;
  const bool has_floor = info->floor_seconds != 0.0;
  return json_pack(
      "{s:o, s:s, s:I, s:s, s:I, s:I, s:o, s:I, s:o, s:I, s:I, s:o, s:o, s:o,"
      " s:o, s:o, s:o, s:b, s:b, s:o*}",
      "site", text_or_null(result->site->prefix), "kind",
      result->site->config.kind == moeplan_site_dense ? "dense" : "routed",
      "rows", (json_int_t)info->rows, "recipe", info->recipe_name, "groups",
      (json_int_t)info->groups, "nodes", (json_int_t)info->nodes, "tile",
      text_or_null(info->tile), "workspace_bytes",
      (json_int_t)info->workspace_bytes, "seconds",
      real_or_null(true, result->seconds), "bytes", (json_int_t)info->bytes,
      "flop", (json_int_t)info->flop, "bytes_per_second",
      real_or_null(info->bytes != 0, (double)info->bytes / result->seconds),
      "flop_per_second",
      real_or_null(info->flop != 0, (double)info->flop / result->seconds),
      "floor_seconds", real_or_null(has_floor, info->floor_seconds),
      "floor_share",
      real_or_null(has_floor, info->floor_seconds / result->seconds), "error",
      real_or_null(result->has_error, result->error), "routing",
      routing_or_null(result), "rows_repeated", (int)result->repeated, "passed",
      (int)tool_result_passes(result), "trace",
      tool_route_trace_json(&result->trace));
}

static json_t* report_json(const struct tool_report* report) {
  json_t* results = json_array();
  bool passed = true;
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_result* result = &report->results[i];
    passed = passed && tool_result_passes(result);
    if (json_array_append_new(results, result_json(result)) != 0) {
      json_decref(results);
      return NULL;
    }
  }
  const struct tool_checkpoint* checkpoint = report->checkpoint;
  return json_pack(
      "{s:s, s:i, s:o, s:s, s:I, s:s, s:f, s:o, s:b}", "moeplan",
      moeplan_version_string(), "numerics_version", MOEPLAN_NUMERICS_VERSION,
      "checkpoint", text_or_null(checkpoint->files.path), "device",
      report->args->device, "file_rows", (json_int_t)checkpoint->rows, "x",
      checkpoint->x == NULL ? "pseudo-random" : "file", "error_bar",
      TOOL_ERROR_BAR, "results", results, "passed", (int)passed);
}

enum tool_status tool_report_json(const struct tool_report* report,
                                  struct tool_error* error) {
  return tool_output_json(report_json(report), error);
}
