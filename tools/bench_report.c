#include "tools/bench_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/output.h"

bool tool_bench_reuse_is_far(const struct tool_bench_report* report,
                             const struct tool_bench_result* result) {
  return result->reuse_bytes >=
         TOOL_REUSE_L2 * (double)report->run->machine->l2_bytes;
}

static void print_machine(const struct tool_machine* machine,
                          const char* device, FILE* out) {
  fprintf(out, "date      %s\n", machine->date);
  if (machine->gpu[0] == '\0') {
    fprintf(out, "device    %s\n", device);
  } else {
    fprintf(out,
            "device    %s: %s, %" PRIu32
            " SMs, L2 %.1f MB; driver %s, CUDA runtime %d.%d\n",
            device, machine->gpu, machine->sm_count,
            (double)machine->l2_bytes * 1e-6,
            machine->driver[0] == '\0' ? "not known" : machine->driver,
            machine->cuda_runtime / 1000, machine->cuda_runtime % 1000 / 10);
  }
  fprintf(out, "memory    %.4g GB/s, streaming read of %.3f GiB%s\n",
          machine->bytes_per_second * 1e-9,
          (double)machine->stream_bytes / (1 << 30),
          machine->gpu[0] == '\0' ? " by one thread" : "");
}

void tool_bench_print_config(const struct moeplan_config* config,
                             enum tool_routing routing, FILE* out) {
  if (config->kind == moeplan_site_dense) {
    fprintf(out, "site      dense, hidden %" PRIu32 ", intermediate %" PRIu32,
            config->hidden_size, config->dense_local_intermediate);
  } else {
    fprintf(out,
            "site      hidden %" PRIu32 ", %" PRIu32 " experts of %" PRIu32
            ", top-%" PRIu32 ", shared %" PRIu32 "; routing %s",
            config->hidden_size, config->n_routed_experts,
            config->moe_intermediate_size, config->num_experts_per_tok,
            config->shared_local_intermediate, tool_routing_names[routing]);
  }
}

static void print_site(const struct tool_bench_run* run, FILE* out) {
  tool_bench_print_config(run->config, run->args->bench.routing, out);
  fprintf(out,
          "\nsets      %" PRIu32 " of x and ids in turn over %" PRIu32
          " copies of %zu weight bytes\n",
          run->sets, run->site.copies, run->site.bytes);
}

static void print_levers(const struct tool_bench_report* report, FILE* out) {
  if (report->num_results != 0 && report->results[0].levers[0] != '\0') {
    fprintf(out, "levers    %s\n", report->results[0].levers);
  }
  fputc('\n', out);
}

static void print_result(const struct tool_bench_result* result, FILE* out) {
  const struct tool_spread* time = &result->time;
  fprintf(out,
          "%5" PRIu32 " %10s %5" PRIu32
          " %8.2f %9.2f %9.2f %9.2f %9.2f %9.2f "
          "%9.2f %7.3f %7.1f ",
          result->info.rows, result->info.recipe_name, result->info.nodes,
          result->experts, result->bytes * 1e-6, time->median * 1e6,
          time->min * 1e6, time->p10 * 1e6, time->p90 * 1e6,
          result->floor_seconds * 1e6, time->median / result->floor_seconds,
          result->bytes / time->median * 1e-9);
  if (result->host.samples == 0) {
    fprintf(out, "%8s\n", "-");
  } else {
    fprintf(out, "%8.2f\n", result->host.median * 1e6);
  }
}

static void print_changed(const struct tool_bench_report* report, FILE* out) {
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_bench_result* result = &report->results[i];
    if (result->compared_rows == 0) continue;
    fprintf(out,
            "TIERED: %" PRIu32 " rows: %" PRIu64 " of %" PRIu64
            " rows go to other experts than in the INVARIANT plan\n",
            result->info.rows, result->changed_rows, result->compared_rows);
  }
}

static void print_nodes(const struct tool_bench_report* report, FILE* out) {
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_bench_result* result = &report->results[i];
    if (result->nodes == NULL) continue;
    fprintf(out, "\nnodes of %" PRIu32 " rows, each by itself, us\n%s",
            result->info.rows, result->nodes);
  }
}

static void print_notes(const struct tool_bench_report* report, FILE* out) {
  const struct tool_bench_run* run = report->run;
  fputs("\nfloor: distinct experts x 3 x H x I x 9/16", out);
  if (run->config->shared_local_intermediate != 0) fputs(", shared", out);
  if (run->args->bench.routing == tool_routing_router) fputs(", router", out);
  fputs(", x and y once, at the streaming rate\n", out);
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_bench_result* result = &report->results[i];
    if (tool_bench_reuse_is_far(report, result)) continue;
    fprintf(out,
            "note: %" PRIu32
            " rows: the site is too small: weights come back after %.1f MB, "
            "less than %d x L2: part of them may be read from L2\n",
            result->info.rows, result->reuse_bytes * 1e-6, TOOL_REUSE_L2);
  }
}

enum tool_status tool_bench_table(const struct tool_bench_report* report,
                                  struct tool_error* error) {
  struct tool_output output;
  const enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  FILE* out = output.stream;
  print_machine(report->run->machine, report->run->args->device, out);
  print_site(report->run, out);
  print_levers(report, out);
  fprintf(out, "%5s %10s %5s %8s %9s %9s %9s %9s %9s %9s %7s %7s %8s\n", "rows",
          "recipe", "nodes", "experts", "MB", "us", "min", "p10", "p90",
          "floor us", "x floor", "GB/s", "call us");
  for (size_t i = 0; i < report->num_results; i++) {
    print_result(&report->results[i], out);
  }
  print_notes(report, out);
  print_changed(report, out);
  print_nodes(report, out);
  return tool_output_close(&output, tool_ok, error);
}
