#define _GNU_SOURCE

#include "tools/run.h"

#include <moeplan.h>
#include <stdlib.h>

#include "tools/checkpoint.h"
#include "tools/compare.h"
#include "tools/load.h"
#include "tools/replay.h"
#include "tools/report.h"

/* 1, 2, 8 and the file's rows, each once. */
static void fill_default_rows(uint32_t file_rows, struct tool_args* args) {
  const uint32_t defaults[] = {1, 2, 8, file_rows};
  size_t count = 0;
  for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
    bool known = defaults[i] == 0; /* a file without rows */
    for (size_t j = 0; j < count; j++) {
      known = known || args->rows[j] == defaults[i];
    }
    if (known) continue;
    args->rows[count] = defaults[i];
    count++;
  }
  args->num_rows = count;
}

static uint32_t max_row_count(const struct tool_args* args) {
  uint32_t most = 1;
  for (size_t i = 0; i < args->num_rows; i++) {
    if (args->rows[i] > most) most = args->rows[i];
  }
  return most;
}

/* [rows, hidden] bf16 for files without input.x: element i is uniform in
 * [-1.73, 1.73), hence of variance 1, from splitmix64 of i. NULL: no memory. */
static uint16_t* make_rows(uint32_t rows, uint32_t hidden) {
  const size_t count = (size_t)rows * hidden;
  uint16_t* x = calloc(count + 1, sizeof(*x));
  for (size_t i = 0; x != NULL && i < count; i++) {
    uint64_t bits = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    const float unit = (float)((bits ^ (bits >> 31)) >> 40) * 0x1p-23f - 1.0f;
    x[i] = tool_bf16_from_float(unit * 1.73f);
  }
  return x;
}

static enum tool_status run_site(const struct tool_args* args,
                                 const struct tool_checkpoint* checkpoint,
                                 struct tool_site* site,
                                 struct tool_report* report,
                                 struct tool_error* error) {
  const uint32_t max_rows = max_row_count(args);
  const struct tool_tensor* x = checkpoint->x;
  uint16_t* made = NULL;
  struct tool_replay replay;
  enum tool_status status =
      tool_replay_open(&replay, args, site, max_rows, error);
  if (status != tool_ok) return status;
  if (x != NULL) {
    status = tool_tensor_check(x, error);
    if (status != tool_ok) goto close_replay;
  } else {
    made = make_rows(max_rows, site->config.hidden_size);
    if (made == NULL) {
      status = tool_fail(error, "cannot make %u rows: out of host memory",
                         (unsigned)max_rows);
      goto close_replay;
    }
  }
  replay.source = x != NULL ? x->data : (const uint8_t*)made;
  replay.source_rows = x != NULL ? checkpoint->rows : max_rows;
  for (size_t i = 0; i < args->num_rows && status == tool_ok; i++) {
    status = tool_replay_rows(&replay, args->rows[i],
                              &report->results[report->num_results]);
    if (status == tool_ok) report->num_results++;
  }
close_replay:
  tool_replay_close(&replay);
  free(made);
  return status;
}

enum tool_status tool_run(const struct tool_args* args,
                          struct tool_error* error) {
  struct tool_checkpoint checkpoint;
  enum tool_status status =
      tool_load_checkpoint(args, NULL, &checkpoint, error);
  if (status != tool_ok) return status;
  struct tool_args filled = *args;
  if (filled.num_rows == 0) fill_default_rows(checkpoint.rows, &filled);
  struct tool_report report = {.args = &filled, .checkpoint = &checkpoint};
  report.results =
      calloc(checkpoint.num_sites * filled.num_rows, sizeof(*report.results));
  if (report.results == NULL) {
    status = tool_fail(error, "cannot hold %zu results: out of host memory",
                       checkpoint.num_sites * filled.num_rows);
  }
  for (size_t i = 0; i < checkpoint.num_sites && status == tool_ok; i++) {
    status =
        run_site(&filled, &checkpoint, &checkpoint.sites[i], &report, error);
  }
  if (status == tool_ok) {
    status = args->json ? tool_report_json(&report, error)
                        : tool_report_table(&report, error);
  }
  if (status == tool_ok) status = tool_report_verdict(&report, error);
  for (size_t i = 0; i < report.num_results; i++) {
    tool_route_trace_free(&report.results[i].trace);
  }
  free(report.results);
  tool_checkpoint_close(&checkpoint);
  return status;
}
