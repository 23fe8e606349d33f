/* The benchmark as JSON, in seconds and bytes, without rounding. */

#include <jansson.h>

#include "tools/bench_report.h"
#include "tools/output_json.h"

static json_t* text_or_null(const char* text) {
  json_t* string = text[0] == '\0' ? NULL : json_string(text);
  return string == NULL ? json_null() : string;
}

static json_t* machine_json(const struct tool_bench_run* run) {
  const struct tool_machine* machine = run->machine;
  return json_pack("{s:s, s:o, s:o, s:i, s:I, s:I, s:I, s:f}", "device",
                   run->args->device, "gpu", text_or_null(machine->gpu),
                   "driver", text_or_null(machine->driver), "cuda_runtime",
                   machine->cuda_runtime, "sm_count",
                   (json_int_t)machine->sm_count, "l2_bytes",
                   (json_int_t)machine->l2_bytes, "stream_bytes",
                   (json_int_t)machine->stream_bytes, "bytes_per_second",
                   machine->bytes_per_second);
}

static json_t* site_json(const struct tool_bench_run* run) {
  const struct moeplan_config* config = run->config;
  const bool dense = config->kind == moeplan_site_dense;
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "kind",
                   dense ? "dense" : "routed", "hidden",
                   (json_int_t)config->hidden_size, "intermediate",
                   (json_int_t)(dense ? config->dense_local_intermediate
                                      : config->moe_intermediate_size),
                   "experts", (json_int_t)config->n_routed_experts, "top_k",
                   (json_int_t)(dense ? 0 : config->num_experts_per_tok),
                   "shared", (json_int_t)config->shared_local_intermediate);
}

static json_t* result_json(const struct tool_bench_report* report,
                           const struct tool_bench_result* result) {
  const struct moeplan_plan_info* info = &result->info;
  const double seconds = result->time.median;
  return json_pack(
      "{s:I, s:s, s:s, s:I, s:I, s:s, s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:f, "
      "s:o,"
      " s:I, s:o, s:f, s:b, s:I, s:I}",
      "rows", (json_int_t)info->rows, "recipe", info->recipe_name, "levers",
      result->levers, "groups", (json_int_t)info->groups, "nodes",
      (json_int_t)info->nodes, "tile", info->tile, "experts", result->experts,
      "experts_min", (json_int_t)result->experts_min, "experts_max",
      (json_int_t)result->experts_max, "bytes", result->bytes, "floor_seconds",
      result->floor_seconds, "times_floor", seconds / result->floor_seconds,
      "bytes_per_second", result->bytes / seconds, "flop_per_second",
      (double)info->flop / seconds, "seconds", tool_spread_json(&result->time),
      "batch", (json_int_t)result->batch, "call_seconds",
      tool_spread_json(&result->host), "reuse_bytes", result->reuse_bytes,
      "reuse_is_far", (int)tool_bench_reuse_is_far(report, result),
      "compared_rows", (json_int_t)result->compared_rows, "changed_rows",
      (json_int_t)result->changed_rows);
}

static json_t* report_json(const struct tool_bench_report* report) {
  const struct tool_bench_run* run = report->run;
  json_t* results = json_array();
  for (size_t i = 0; i < report->num_results; i++) {
    if (json_array_append_new(results,
                              result_json(report, &report->results[i])) != 0) {
      json_decref(results);
      return NULL;
    }
  }
  return json_pack(
      "{s:s, s:i, s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:o}", "moeplan",
      moeplan_version_string(), "numerics_version", MOEPLAN_NUMERICS_VERSION,
      "date", run->machine->date, "machine", machine_json(run), "site",
      site_json(run), "routing",
      run->config->kind == moeplan_site_dense
          ? "none"
          : tool_routing_names[run->args->bench.routing],
      "sets", (json_int_t)run->sets, "copies", (json_int_t)run->site.copies,
      "copy_bytes", (json_int_t)run->site.bytes, "results", results);
}

enum tool_status tool_bench_json(const struct tool_bench_report* report,
                                 struct tool_error* error) {
  return tool_output_json(report_json(report), error);
}
