#define _GNU_SOURCE

#include "tools/parallel_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tools/bench_report.h"
#include "tools/output.h"
#include "tools/output_json.h"

static const double most_error = 0x1p-16;

static const char* routing_name(const struct tool_parallel_report* report) {
  return report->run->config->kind == moeplan_site_dense
             ? "none"
             : tool_routing_names[report->run->args->bench.routing];
}

/* Part of a replay's time that is not there without the addition. */
static double addition_share(const struct tool_parallel_line* line) {
  const double both = line->ranks[tool_parallel_both].median;
  return (both - line->ranks[tool_parallel_plan].median) / both;
}

static void print_head(const struct tool_parallel_report* report, FILE* out) {
  const struct tool_machine* machine = report->machine;
  const struct moeplan_config* config = report->run->config;
  fprintf(out, "date      %s\n", machine->date);
  if (report->nccl == 0) {
    fprintf(out, "device    host, ranks one after another\n");
  } else {
    fprintf(out,
            "device    %" PRIu32
            " x %s; driver %s, CUDA runtime %d.%d, NCCL %d.%d.%d\n",
            report->ranks, machine->gpu,
            machine->driver[0] == '\0' ? "not known" : machine->driver,
            machine->cuda_runtime / 1000, machine->cuda_runtime % 1000 / 10,
            report->nccl / 10000, report->nccl / 100 % 100, report->nccl % 100);
  }
  tool_bench_print_config(config, report->run->args->bench.routing, out);
  fputs("\nranks     ", out);
  for (uint32_t i = 0; i < report->ranks; i++) {
    const struct moeplan_config* part = &report->parts[i];
    if (config->kind == moeplan_site_dense) {
      fprintf(out, "%s%" PRIu32 " columns", i == 0 ? "" : ", ",
              part->dense_local_intermediate);
    } else {
      fprintf(out, "%s%" PRIu32 " experts + shared %" PRIu32,
              i == 0 ? "" : ", ", part->local_experts,
              part->shared_local_intermediate);
    }
  }
  fprintf(out,
          "\nsets      %" PRIu32 " of x and ids in turn over %" PRIu32
          " copies of the weights; y float32\n\n",
          report->run->sets, report->run->copies);
}

static void print_time(const struct tool_spread* time, FILE* out) {
  if (time->samples == 0) {
    fprintf(out, " %9s", "-");
  } else {
    fprintf(out, " %9.2f", time->median * 1e6);
  }
}

static void print_line(const struct tool_parallel_line* line, FILE* out) {
  fprintf(out, "%5" PRIu32 " %10s", line->info->rows, line->info->recipe_name);
  print_time(&line->whole, out);
  for (int i = 0; i < TOOL_PARALLEL_GRAPHS; i++) {
    print_time(&line->ranks[i], out);
  }
  if (line->ranks[tool_parallel_both].samples == 0) {
    fprintf(out, " %7s %7s", "-", "-");
  } else {
    fprintf(out, " %6.1f%% %7.2f", 100.0 * addition_share(line),
            line->whole.median / line->ranks[tool_parallel_both].median);
  }
  fprintf(out, " %9.2e\n", line->relative_l2);
}

enum tool_status tool_parallel_table(const struct tool_parallel_report* report,
                                     struct tool_error* error) {
  struct tool_output output;
  const enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  FILE* out = output.stream;
  print_head(report, out);
  fprintf(out, "%5s %10s %9s %9s %9s %9s %7s %7s %9s\n", "rows", "recipe",
          "1 GPU us", "ranks us", "no sum", "sum alone", "sum", "speedup",
          "error");
  for (size_t i = 0; i < report->num_lines; i++) {
    print_line(&report->lines[i], out);
  }
  fprintf(
      out,
      "\nranks us: the plan and the all-reduce of y [rows, %" PRIu32
      "] float32 in one graph, the slowest rank; no sum: the plan alone; sum: "
      "(ranks - no sum) / ranks\n"
      "error: relative L2 of the sum against one device's y, the worst row\n",
      report->run->config->hidden_size);
  return tool_output_close(&output, tool_ok, error);
}

/* ---- JSON, in seconds ---- */

static json_t* line_json(const struct tool_parallel_line* line) {
  return json_pack(
      "{s:I, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "rows",
      (json_int_t)line->info->rows, "recipe", line->info->recipe_name, "nodes",
      (json_int_t)line->info->nodes, "whole_seconds",
      tool_spread_json(&line->whole), "ranks_seconds",
      tool_spread_json(&line->ranks[tool_parallel_both]), "plan_seconds",
      tool_spread_json(&line->ranks[tool_parallel_plan]), "sum_seconds",
      tool_spread_json(&line->ranks[tool_parallel_addition]), "sum_share",
      line->ranks[tool_parallel_both].samples == 0
          ? json_null()
          : json_real(addition_share(line)),
      "relative_l2",
      isfinite(line->relative_l2) ? json_real(line->relative_l2) : json_null());
}

static json_t* part_json(const struct moeplan_config* whole,
                         const struct moeplan_config* part) {
  const bool dense = whole->kind == moeplan_site_dense;
  return json_pack("{s:I, s:I, s:I}", "experts",
                   (json_int_t)(dense ? 0 : part->local_experts), "shared",
                   (json_int_t)(dense ? 0 : part->shared_local_intermediate),
                   "dense",
                   (json_int_t)(dense ? part->dense_local_intermediate : 0));
}

static json_t* report_json(const struct tool_parallel_report* report) {
  const struct tool_machine* machine = report->machine;
  json_t* parts = json_array();
  json_t* lines = json_array();
  for (uint32_t i = 0; i < report->ranks; i++) {
    json_array_append_new(parts,
                          part_json(report->run->config, &report->parts[i]));
  }
  for (size_t i = 0; i < report->num_lines; i++) {
    json_array_append_new(lines, line_json(&report->lines[i]));
  }
  return json_pack(
      "{s:s, s:i, s:s, s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:o, s:o}", "moeplan",
      moeplan_version_string(), "numerics_version", MOEPLAN_NUMERICS_VERSION,
      "date", machine->date, "device", report->run->args->device, "gpu",
      machine->gpu, "driver", machine->driver, "nccl", report->nccl, "routing",
      routing_name(report), "sets", (json_int_t)report->run->sets, "copies",
      (json_int_t)report->run->copies, "ranks", parts, "results", lines);
}

enum tool_status tool_parallel_json(const struct tool_parallel_report* report,
                                    struct tool_error* error) {
  return tool_output_json(report_json(report), error);
}

enum tool_status tool_parallel_verdict(
    const struct tool_parallel_report* report, struct tool_error* error) {
  for (size_t i = 0; i < report->num_lines; i++) {
    const struct tool_parallel_line* line = &report->lines[i];
    if (line->relative_l2 <= most_error) continue;
    return tool_fail(error,
                     "cannot accept the sum of %" PRIu32 " ranks at %" PRIu32
                     " rows: relative L2 error %.3g, at most %.3g",
                     report->ranks, line->info->rows, line->relative_l2,
                     most_error);
  }
  return tool_ok;
}
