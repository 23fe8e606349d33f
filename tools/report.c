#define _GNU_SOURCE

#include "tools/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare.h"
#include "tools/output.h"

enum { CELL_BYTES = TOOL_PREFIX_BYTES };

/* Fills one cell. The first column is aligned left, the others right. */
typedef void (*cell_fn)(const struct tool_result* result, char* cell);

static void cell_site(const struct tool_result* result, char* cell) {
  snprintf(cell, CELL_BYTES, "%s", result->site->prefix);
}

static void cell_rows(const struct tool_result* result, char* cell) {
  snprintf(cell, CELL_BYTES, "%" PRIu32 "%s", result->info.rows,
           result->repeated ? "*" : "");
}

static void cell_recipe(const struct tool_result* result, char* cell) {
  snprintf(cell, CELL_BYTES, "%s", result->info.recipe_name);
}

static void cell_nodes(const struct tool_result* result, char* cell) {
  snprintf(cell, CELL_BYTES, "%" PRIu32, result->info.nodes);
}

static void cell_tile(const struct tool_result* result, char* cell) {
  const char* tile = result->info.tile;
  snprintf(cell, CELL_BYTES, "%s", tile == NULL || *tile == '\0' ? "-" : tile);
}

static void cell_workspace(const struct tool_result* result, char* cell) {
  const double kib = (double)result->info.workspace_bytes / 1024.0;
  snprintf(cell, CELL_BYTES, "%.1f %s", kib < 1024.0 ? kib : kib / 1024.0,
           kib < 1024.0 ? "KiB" : "MiB");
}

static void cell_time(const struct tool_result* result, char* cell) {
  const double us = result->seconds * 1e6;
  if (us < 1e3) {
    snprintf(cell, CELL_BYTES, "%.1f us", us);
  } else {
    snprintf(cell, CELL_BYTES, "%.2f ms", us * 1e-3);
  }
}

static void cell_rate(const struct tool_result* result, char* cell) {
  const bool prefill = result->info.recipe == moeplan_recipe_prefill;
  const uint64_t work = prefill ? result->info.flop : result->info.bytes;
  const double rate = (double)work / result->seconds;
  if (work == 0) {
    snprintf(cell, CELL_BYTES, "-");
  } else if (prefill) {
    snprintf(cell, CELL_BYTES, "%.4g TFLOP/s", rate * 1e-12);
  } else {
    snprintf(cell, CELL_BYTES, "%.4g GB/s", rate * 1e-9);
  }
}

static void cell_floor(const struct tool_result* result, char* cell) {
  const double floor_seconds = result->info.floor_seconds;
  if (floor_seconds == 0.0) {
    snprintf(cell, CELL_BYTES, "-");
  } else {
    snprintf(cell, CELL_BYTES, "%.1f %%",
             100.0 * floor_seconds / result->seconds);
  }
}

static void cell_error(const struct tool_result* result, char* cell) {
  if (result->has_error) {
    snprintf(cell, CELL_BYTES, "%.6f", result->error);
  } else {
    snprintf(cell, CELL_BYTES, "-");
  }
}

static void cell_routing(const struct tool_result* result, char* cell) {
  if (result->routed_rows == 0) {
    snprintf(cell, CELL_BYTES, "-");
  } else if (result->rows_differing == 0) {
    snprintf(cell, CELL_BYTES, "ok");
  } else {
    snprintf(cell, CELL_BYTES, "%" PRIu64 " of %" PRIu64 " rows differ",
             result->rows_differing, result->routed_rows);
  }
}

static const struct {
  const char* title;
  cell_fn fill;
} columns[] = {
    {"site", cell_site},       {"rows", cell_rows},
    {"recipe", cell_recipe},   {"nodes", cell_nodes},
    {"tile", cell_tile},       {"workspace", cell_workspace},
    {"time", cell_time},       {"rate", cell_rate},
    {"floor", cell_floor},     {"error", cell_error},
    {"routing", cell_routing},
};

enum { NUM_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void print_table(const struct tool_report* report, FILE* out) {
  int widths[NUM_COLUMNS];
  char cell[CELL_BYTES];
  for (size_t i = 0; i < NUM_COLUMNS; i++) {
    widths[i] = (int)strlen(columns[i].title);
    for (size_t j = 0; j < report->num_results; j++) {
      columns[i].fill(&report->results[j], cell);
      if ((int)strlen(cell) > widths[i]) widths[i] = (int)strlen(cell);
    }
  }
  for (size_t j = 0; j <= report->num_results; j++) {
    for (size_t i = 0; i < NUM_COLUMNS; i++) {
      const char* text = cell;
      if (j == 0) {
        text = columns[i].title;
      } else {
        columns[i].fill(&report->results[j - 1], cell);
      }
      fprintf(out, i == 0 ? "%-*s" : "  %*s", widths[i], text);
    }
    fputc('\n', out);
  }
}

static void print_notes(const struct tool_report* report, FILE* out) {
  bool repeated = false;
  for (size_t i = 0; i < report->num_results; i++) {
    repeated = repeated || report->results[i].repeated;
  }
  if (repeated) {
    fprintf(out,
            "* more rows than the file's %" PRIu32
            ": the file's rows are repeated cyclically\n",
            report->checkpoint->rows);
  }
  if (report->checkpoint->x == NULL) {
    fputs(
        "note: the file has no input.x: x is pseudo-random, with a fixed "
        "seed\n",
        out);
  }
  fprintf(out, "error: relative L2 to the file's float32 reference, at most ");
  fprintf(out, "%.4f\n", TOOL_ERROR_BAR);
}

bool tool_result_passes(const struct tool_result* result) {
  /* Written so that a NaN fails. */
  const bool accurate = !result->has_error || result->error <= TOOL_ERROR_BAR;
  return accurate && result->rows_differing == 0;
}

enum tool_status tool_report_table(const struct tool_report* report,
                                   struct tool_error* error) {
  struct tool_output output;
  enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  print_table(report, output.stream);
  print_notes(report, output.stream);
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_result* result = &report->results[i];
    tool_route_trace_print(&result->trace, result->site->prefix,
                           result->info.rows, output.stream);
  }
  return tool_output_close(&output, status, error);
}

enum tool_status tool_report_verdict(const struct tool_report* report,
                                     struct tool_error* error) {
  const struct tool_result* first = NULL;
  size_t failures = 0;
  for (size_t i = 0; i < report->num_results; i++) {
    if (tool_result_passes(&report->results[i])) continue;
    if (first == NULL) first = &report->results[i];
    failures++;
  }
  if (first == NULL) return tool_ok;
  char rule[160];
  if (first->rows_differing != 0) {
    snprintf(rule, sizeof(rule),
             "expected the file's routing, found %" PRIu64 " of %" PRIu64
             " rows to differ",
             first->rows_differing, first->routed_rows);
  } else {
    snprintf(rule, sizeof(rule), "expected an error of at most %.4f, found %g",
             TOOL_ERROR_BAR, first->error);
  }
  return tool_fail(error,
                   "cannot confirm site %s at %" PRIu32
                   " rows of %s: %s (%zu of %zu results fail)",
                   first->site->prefix, first->info.rows,
                   report->checkpoint->files.path, rule, failures,
                   report->num_results);
}
