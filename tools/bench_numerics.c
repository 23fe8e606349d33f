#include "tools/bench_numerics.h"

#include <math.h>
#include <moeplan.h>
#include <stdlib.h>
#include <string.h>

#include "tools/device_memory.h"
#include "tools/session.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum {
  ROWS = TOOL_NUMERICS_ROWS,
  TOPK = TOOL_NUMERICS_TOPK,
  EXPERTS = TOOL_NUMERICS_EXPERTS,
  HIDDEN = TOOL_NUMERICS_HIDDEN,
  OUTPUTS = TOOL_NUMERICS_OUTPUTS,
  POISON = 0xFF, /* as float32 a NaN */
};

static const double small_output = 0x1p-8; /* of the largest: not in max_rel */

/* Down's outputs, [rows, k, H], those of the plans widened. */
struct outputs {
  double grouped[OUTPUTS], gemv[OUTPUTS];
  double exact[OUTPUTS], rounded[OUTPUTS];
};

/* What the runs share. */
struct runner {
  struct tool_session session;
  struct tool_memory memory;
  const struct tool_numerics_data* data;
  const struct tool_numerics_inputs* at; /* on the device */
  struct moeplan_binding binding;
};

/* ---- runs ---- */

static enum tool_status write_blob(const struct runner* runner, void* blob,
                                   size_t bytes) {
  const struct tool_numerics_inputs* at = runner->at;
  const void* addresses[6][EXPERTS];
  float one[EXPERTS];
  for (size_t e = 0; e < EXPERTS; e++) {
    addresses[0][e] = at->gate.codes;
    addresses[1][e] = at->gate.scale;
    addresses[2][e] = at->up.codes;
    addresses[3][e] = at->up.scale;
    addresses[4][e] = at->down[e].codes;
    addresses[5][e] = at->down[e].scale;
    one[e] = 1.0f;
  }
  struct moeplan_site site = MOEPLAN_SITE_INIT;
  site.router = at->router;
  site.gate = (struct moeplan_projection){addresses[0], addresses[1], one};
  site.up = (struct moeplan_projection){addresses[2], addresses[3], one};
  site.down = (struct moeplan_projection){addresses[4], addresses[5],
                                          runner->data->down_scale_2};
  return tool_session_check(
      &runner->session, "write the site",
      moeplan_site_write(runner->session.planner, &site, blob, bytes));
}

static enum tool_status place_site(struct runner* runner) {
  struct tool_error* error = runner->session.error;
  size_t bytes = 0;
  void* block = NULL;
  TRY(tool_session_check(&runner->session, "size the site",
                         moeplan_site_size(runner->session.planner, &bytes)));
  TRY(tool_memory_allocate(&runner->memory, bytes, &block, error));
  runner->binding.site = block;
  void* blob = malloc(bytes);
  if (blob == NULL) {
    return tool_fail(error, "cannot allocate %zu bytes: out of host memory",
                     bytes);
  }
  runner->binding.host_site = blob; /* freed by run_both */
  TRY(write_blob(runner, blob, bytes));
  return tool_memory_upload(&runner->memory, block, blob, bytes, error);
}

static enum tool_status place_all(struct runner* runner) {
  const struct tool_session* session = &runner->session;
  const size_t bytes = sizeof(runner->data->inputs);
  struct tool_memory* memory = &runner->memory;
  struct moeplan_binding* binding = &runner->binding;
  void* block = NULL;
  TRY(tool_memory_allocate(memory, bytes, &block, session->error));
  TRY(tool_memory_upload(memory, block, &runner->data->inputs, bytes,
                         session->error));
  runner->at = block;
  TRY(place_site(runner));
  TRY(tool_session_check(
      session, "size the workspace",
      moeplan_workspace_size(session->planner, ROWS, &session->options,
                             &binding->workspace_bytes)));
  TRY(tool_memory_allocate(memory, binding->workspace_bytes,
                           &binding->workspace, session->error));
  TRY(tool_memory_allocate(memory, sizeof(float[ROWS][HIDDEN]), &binding->y,
                           session->error));
  binding->x = runner->at->x;
  binding->topk_weights = runner->at->topk_weights;
  return tool_ok;
}

/* Slot j of every row, for each j. */
static enum tool_status run_plan(const struct runner* runner,
                                 moeplan_plan_t plan, double* out) {
  const struct tool_memory* memory = &runner->memory;
  struct tool_error* error = runner->session.error;
  struct moeplan_binding binding = runner->binding;
  float y[ROWS][HIDDEN];
  for (size_t j = 0; j < TOPK; j++) {
    binding.topk_ids = runner->at->ids[j];
    TRY(tool_memory_fill(memory, binding.y, POISON, sizeof(y), error));
    TRY(tool_session_check(&runner->session, "run a plan",
                           moeplan_enqueue(plan, &binding, memory->stream)));
    TRY(tool_memory_download(memory, y, binding.y, sizeof(y), error));
    for (size_t r = 0; r < ROWS; r++) {
      for (size_t i = 0; i < HIDDEN; i++) {
        if (!isfinite(y[r][i])) {
          return tool_fail(error,
                           "cannot use row %zu's output %zu of slot %zu: it "
                           "is not finite",
                           r, i, j);
        }
        out[(r * TOPK + j) * HIDDEN + i] = (double)y[r][i];
      }
    }
  }
  return tool_ok;
}

static enum tool_status run_recipe(const struct runner* runner,
                                   enum moeplan_recipe recipe, double* out) {
  const struct tool_session* session = &runner->session;
  struct moeplan_options options = session->options;
  options.recipe = recipe;
  options.y_type = moeplan_dtype_f32;
  moeplan_plan_t plan = NULL;
  TRY(tool_session_check(
      session, "create a plan",
      moeplan_plan_create(session->planner, ROWS, &options, &plan)));
  const enum tool_status status = run_plan(runner, plan, out);
  moeplan_plan_destroy(plan);
  return status;
}

static enum tool_status place_and_run(struct runner* runner,
                                      struct outputs* out) {
  TRY(place_all(runner));
  TRY(run_recipe(runner, moeplan_recipe_prefill, out->grouped));
  return run_recipe(runner, moeplan_recipe_per_row, out->gemv);
}

static enum tool_status run_both(const struct tool_args* args,
                                 const struct tool_numerics_data* data,
                                 struct outputs* out,
                                 struct tool_error* error) {
  struct runner runner = {.data = data, .binding = MOEPLAN_BINDING_INIT};
  struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.hidden_size = HIDDEN;
  config.moe_intermediate_size = TOOL_NUMERICS_INTER;
  config.n_routed_experts = EXPERTS;
  config.num_experts_per_tok = TOPK;
  TRY(tool_memory_open(args->device, &runner.memory, error));
  enum tool_status status =
      tool_session_open(&runner.session, args, &config, ROWS, error);
  if (status == tool_ok) {
    status = place_and_run(&runner, out);
    free((void*)runner.binding.host_site);
    tool_session_close(&runner.session);
  }
  tool_memory_close(&runner.memory);
  return status;
}

/* ---- errors ---- */

static struct tool_numerics_errors errors_of(const double* out,
                                             const double* against) {
  struct tool_numerics_errors errors = {0.0, 0.0, 0.0};
  double largest = 0.0;
  for (size_t i = 0; i < OUTPUTS; i++) {
    largest = fmax(largest, fabs(against[i]));
  }
  for (size_t i = 0; i < OUTPUTS; i++) {
    const double wanted = fabs(against[i]);
    const double error = fabs(out[i] - against[i]);
    errors.max_abs = fmax(errors.max_abs, error);
    if (wanted > small_output * largest) {
      errors.max_rel = fmax(errors.max_rel, error / wanted);
    }
  }
  errors.of_largest = errors.max_abs / largest;
  return errors;
}

static size_t count_different(const double* a, const double* b) {
  size_t different = 0;
  for (size_t i = 0; i < OUTPUTS; i++) {
    if (a[i] != b[i] || signbit(a[i]) != signbit(b[i])) different++;
  }
  return different;
}

static enum tool_status judge(const struct tool_numerics_report* report,
                              struct tool_error* error) {
  const double grouped = report->lines[tool_numerics_grouped_exact].max_rel;
  const double gemv = report->lines[tool_numerics_gemv_exact].max_rel;
  if (!(grouped <= TOOL_NUMERICS_BAR && gemv <= TOOL_NUMERICS_BAR)) {
    return tool_fail(error,
                     "cannot accept max_rel %.6f (grouped) and %.6f (GEMV) "
                     "against exact: at most %.4f",
                     grouped, gemv, TOOL_NUMERICS_BAR);
  }
  if (report->different == 0) return tool_ok;
  return tool_fail(error,
                   "cannot accept %zu of %zu outputs that differ between "
                   "grouped and GEMV",
                   report->different, report->outputs);
}

static enum tool_status compare(const struct tool_args* args,
                                struct tool_numerics_data* data,
                                struct outputs* out, struct tool_error* error) {
  tool_numerics_draw(data);
  TRY(run_both(args, data, out, error));
  tool_numerics_reference(data, false, out->exact);
  tool_numerics_reference(data, true, out->rounded);
  const struct tool_numerics_report report = {
      .device = args->device,
      .lines =
          {
              [tool_numerics_grouped_exact] =
                  errors_of(out->grouped, out->exact),
              [tool_numerics_gemv_exact] = errors_of(out->gemv, out->exact),
              [tool_numerics_grouped_rounded] =
                  errors_of(out->grouped, out->rounded),
              [tool_numerics_grouped_gemv] = errors_of(out->grouped, out->gemv),
          },
      .outputs = OUTPUTS,
      .different = count_different(out->grouped, out->gemv),
  };
  TRY(args->json ? tool_numerics_json(&report, error)
                 : tool_numerics_table(&report, error));
  return judge(&report, error);
}

enum tool_status tool_bench_numerics(const struct tool_args* args,
                                     struct tool_error* error) {
  struct tool_numerics_data* data = calloc(1, sizeof(*data));
  struct outputs* out = calloc(1, sizeof(*out));
  const enum tool_status status =
      data == NULL || out == NULL
          ? tool_fail(error, "cannot hold the outputs: out of host memory")
          : compare(args, data, out, error);
  free(data);
  free(out);
  return status;
}
