#define _GNU_SOURCE

#include "tools/plan.h"

#include <inttypes.h>
#include <math.h>
#include <moeplan.h>
#include <stdio.h>
#include <string.h>

#include "tools/device_memory.h"
#include "tools/output.h"
#include "tools/presets.h"
#include "tools/session.h"
#include "tools/shape.h"

/* One kind of site on one device, and beside it on the host, whose plans say
 * what a replay must read even where the device has no kernel. */
struct planning {
  const char* kind;
  FILE* out;
  struct tool_session device;
  struct tool_session host;
  struct moeplan_device_info info;
  struct tool_error* refusal; /* the first plan that was refused */
};

static int write_text(void* context, const char* text, size_t bytes) {
  return fwrite(text, 1, bytes, context) == bytes ? 0 : 1;
}

static void print_rate(FILE* out, double rate, const char* unit) {
  if (rate == 0.0) {
    fprintf(out, ", %s not known", unit);
  } else {
    fprintf(out, ", %.4g %s", rate, unit);
  }
}

static void print_device(const struct planning* planning) {
  const struct moeplan_device_info* info = &planning->info;
  FILE* out = planning->out;
  fprintf(out, "device %s", info->name);
  if (info->sm != 0) {
    fprintf(out, ": %s, sm_%" PRIu32 ", %" PRIu32 " SMs", info->model, info->sm,
            info->sm_count);
  }
  print_rate(out, info->bytes_per_second, "B/s");
  print_rate(out, info->flop_per_second, "flop/s");
  if (info->bytes_per_second != 0.0) {
    fprintf(out, " (%s)", info->datasheet ? "datasheet" : "measured");
  }
  fputc('\n', out);
}

static void print_config(const struct planning* planning,
                         const struct moeplan_config* config) {
  FILE* out = planning->out;
  fprintf(out, "site %s: hidden %" PRIu32, planning->kind, config->hidden_size);
  if (config->kind == moeplan_site_dense) {
    fprintf(out, ", intermediate %" PRIu32, config->dense_local_intermediate);
  } else {
    fprintf(out, ", %" PRIu32 " experts of %" PRIu32 ", top-%" PRIu32,
            config->n_routed_experts, config->moe_intermediate_size,
            config->num_experts_per_tok);
    fprintf(out, ", shared %" PRIu32 ", %s%s, scale %g",
            config->shared_local_intermediate,
            config->scoring == moeplan_scoring_softmax ? "softmax" : "sigmoid",
            config->norm_topk_prob ? " normalized" : "",
            (double)config->routed_scaling_factor);
  }
  if (isfinite(config->swiglu_limit)) {
    fprintf(out, ", SwiGLU limit %g\n", (double)config->swiglu_limit);
  } else {
    fputs(", no SwiGLU limit\n", out);
  }
}

static void print_floor(FILE* out, const char* what, double seconds) {
  if (seconds == 0.0) {
    fprintf(out, "%s: not known", what);
  } else {
    fprintf(out, "%s: %.2f us", what, seconds * 1e6);
  }
}

/* The plan, its workspace and its floor. */
static enum tool_status print_plan(struct planning* planning,
                                   moeplan_plan_t plan) {
  const struct tool_session* session = &planning->device;
  FILE* out = planning->out;
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  enum tool_status status = tool_session_check(
      session, "print a plan", moeplan_plan_print(plan, write_text, out));
  if (status == tool_ok) {
    status = tool_session_check(session, "print a workspace",
                                moeplan_workspace_print(plan, write_text, out));
  }
  if (status == tool_ok) {
    status = tool_session_check(session, "describe a plan",
                                moeplan_plan_info(plan, &info));
  }
  if (status != tool_ok) return status;
  print_floor(out, "floor", info.floor_seconds);
  fprintf(out, " (%" PRIu64 " bytes, %" PRIu64 " flop)\n\n", info.bytes,
          info.flop);
  return tool_ok;
}

/* What a refused plan would at least have to read. */
static enum tool_status print_refusal(struct planning* planning, uint32_t rows,
                                      const char* sentence) {
  const struct tool_session* session = &planning->host;
  FILE* out = planning->out;
  moeplan_plan_t plan = NULL;
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  fprintf(out, "refused rows %" PRIu32 ": %s\n", rows, sentence);
  enum tool_status status = tool_session_check(
      session, "create a plan",
      moeplan_plan_create(session->planner, rows, &session->options, &plan));
  if (status != tool_ok) return status;
  status = tool_session_check(session, "describe a plan",
                              moeplan_plan_info(plan, &info));
  moeplan_plan_destroy(plan);
  if (status != tool_ok) return status;
  const double rate = planning->info.bytes_per_second;
  print_floor(out, "byte floor", rate == 0.0 ? 0.0 : (double)info.bytes / rate);
  fprintf(out, " (%" PRIu64 " bytes of the host's recipe %s)\n\n", info.bytes,
          info.recipe_name);
  return tool_ok;
}

static enum tool_status plan_rows(struct planning* planning, uint32_t rows) {
  struct tool_session* session = &planning->device;
  struct tool_error* error = session->error;
  struct tool_error refusal = {""};
  moeplan_plan_t plan = NULL;
  session->error = &refusal;
  enum tool_status status = tool_session_check(
      session, "create a plan",
      moeplan_plan_create(session->planner, rows, &session->options, &plan));
  session->error = error;
  if (status == tool_ok) {
    status = print_plan(planning, plan);
    moeplan_plan_destroy(plan);
    return status;
  }
  if (planning->refusal->text[0] == '\0') *planning->refusal = refusal;
  return print_refusal(planning, rows, refusal.text);
}

static enum tool_status print_workspace(struct planning* planning,
                                        uint32_t max_rows) {
  const struct tool_session* session = &planning->device;
  size_t bytes = 0;
  const enum tool_status status =
      tool_session_check(session, "size a workspace",
                         moeplan_workspace_size(session->planner, max_rows,
                                                &session->options, &bytes));
  if (status == tool_ok) {
    fprintf(planning->out,
            "workspace for every plan up to %" PRIu32 " rows: %zu bytes\n\n",
            max_rows, bytes);
  }
  return status;
}

static enum tool_status plan_kind(const struct tool_args* args,
                                  const struct moeplan_config* config,
                                  FILE* out, struct tool_error* refusal,
                                  struct tool_error* error) {
  struct tool_args host_args = *args;
  host_args.device = "host";
  struct planning planning = {
      .kind = config->kind == moeplan_site_dense ? "dense" : "routed",
      .out = out,
      .info = MOEPLAN_DEVICE_INFO_INIT,
      .refusal = refusal};
  uint32_t max_rows = 1;
  for (size_t i = 0; i < args->num_rows; i++) {
    if (args->rows[i] > max_rows) max_rows = args->rows[i];
  }
  print_config(&planning, config);
  enum tool_status status =
      tool_session_open(&planning.device, args, config, max_rows, error);
  if (status != tool_ok) return status;
  status =
      tool_session_open(&planning.host, &host_args, config, max_rows, error);
  if (status != tool_ok) goto close_device;
  status = tool_session_check(
      &planning.device, "describe a device",
      moeplan_device_info(planning.device.planner, &planning.info));
  if (status == tool_ok) {
    print_device(&planning);
    status = print_workspace(&planning, max_rows);
  }
  for (size_t i = 0; i < args->num_rows && status == tool_ok; i++) {
    status = plan_rows(&planning, args->rows[i]);
  }
  tool_session_close(&planning.host);
close_device:
  tool_session_close(&planning.device);
  return status;
}

/* Which kinds of sites: the one that was asked for, or those that the model
 * has. */
static bool wants_kind(const struct tool_args* args,
                       const struct tool_shape* shape,
                       enum moeplan_site_kind kind) {
  const bool dense = kind == moeplan_site_dense;
  if (args->kind != NULL) {
    return dense == (strcmp(args->kind, "dense") == 0);
  }
  return dense ? shape->intermediate_size != 0 &&
                     shape->first_k_dense_replace != 0
               : shape->n_routed_experts != 0;
}

static enum tool_status plan_shape(const struct tool_args* args,
                                   const struct tool_shape* shape, FILE* out,
                                   struct tool_error* refusal,
                                   struct tool_error* error) {
  static const enum moeplan_site_kind kinds[] = {moeplan_site_routed,
                                                 moeplan_site_dense};
  enum tool_status status = tool_ok;
  if (shape->difference != NULL) {
    fprintf(out, "note: only the sizes are this model's: %s\n",
            shape->difference);
  }
  for (size_t i = 0; i < 2 && status == tool_ok; i++) {
    if (!wants_kind(args, shape, kinds[i])) continue;
    struct moeplan_config config;
    tool_shape_config(shape, kinds[i], &config);
    status = plan_kind(args, &config, out, refusal, error);
  }
  return status;
}

enum tool_status tool_plan(const struct tool_args* args,
                           struct tool_error* error) {
  static struct tool_error refusal;
  struct tool_args filled = *args;
  struct tool_output output;
  struct tool_shape shape;
  enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  if (args->preset != NULL && strcmp(args->preset, "list") == 0) {
    tool_presets_print(output.stream);
    return tool_output_close(&output, tool_ok, error);
  }
  if (filled.num_rows == 0) {
    static const uint32_t defaults[] = {1, 8, 64, 1024};
    memcpy(filled.rows, defaults, sizeof(defaults));
    filled.num_rows = sizeof(defaults) / sizeof(defaults[0]);
  }
  status = args->preset != NULL ? tool_preset_find(args->preset, &shape, error)
                                : tool_shape_read(args->config, &shape, error);
  if (status == tool_ok) {
    status = plan_shape(&filled, &shape, output.stream, &refusal, error);
  }
  status = tool_output_close(&output, status, error);
  if (status == tool_ok && refusal.text[0] != '\0') {
    status = tool_fail(error, "%s", refusal.text);
  }
  return status;
}
