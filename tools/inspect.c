#define _GNU_SOURCE

#include "tools/inspect.h"

#include <inttypes.h>
#include <moeplan.h>
#include <stdlib.h>
#include <string.h>

#include "tools/load.h"
#include "tools/output.h"

/* ---- what is wrong beyond single tensors ------------------------------------- */

static void keep_log(void* context, enum moeplan_log_level level,
                     const char* text) {
  struct tool_error* error = context;
  if (level == moeplan_log_error) tool_fail(error, "%s", text);
}

/* The library's own sentence about a site's shape. */
static enum tool_status check_config(const struct moeplan_config* config,
                                     struct tool_error* error) {
  moeplan_planner_t planner = NULL;
  struct moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  hooks.context = error;
  hooks.log = keep_log;
  const enum moeplan_status status =
      moeplan_planner_create(config, "host", &hooks, &planner);
  moeplan_planner_destroy(planner);
  if (status == moeplan_status_success) return tool_ok;
  return tool_fail(error, "cannot create a planner: %s",
                   moeplan_status_string(status));
}

/* N of "model.layers.N.mlp"; false if the name has no such part. */
static bool layer_of(const char* prefix, uint32_t* layer_out) {
  const char* at = strstr(prefix, "layers.");
  if (at == NULL) return false;
  at += strlen("layers.");
  char* end = NULL;
  const unsigned long layer = strtoul(at, &end, 10);
  if (end == at || layer > UINT32_MAX) return false;
  *layer_out = (uint32_t)layer;
  return true;
}

/* The config says which layers come first as dense ones. */
static enum tool_status check_kind(const struct tool_checkpoint* checkpoint,
                                   const struct tool_site* site,
                                   struct tool_error* error) {
  const uint32_t first = checkpoint->shape.first_k_dense_replace;
  uint32_t layer = 0;
  if (first == TOOL_NO_DENSE_RULE || !layer_of(site->prefix, &layer)) {
    return tool_ok;
  }
  const bool dense = site->config.kind == moeplan_site_dense;
  if (dense == (layer < first)) return tool_ok;
  return tool_fail(error,
                   "cannot accept %s: site %s: expected a %s site with "
                   "first_k_dense_replace %" PRIu32 ", found a %s one",
                   checkpoint->files.path, site->prefix,
                   dense ? "routed" : "dense", first,
                   dense ? "dense" : "routed");
}

/* Each of num_hidden_layers has a site. Layers beyond (for drafts) may. */
static void check_layers(struct tool_inspection* inspection,
                         struct tool_error* error) {
  const struct tool_checkpoint* checkpoint = inspection->checkpoint;
  const uint32_t layers = checkpoint->shape.num_hidden_layers;
  bool* seen = calloc((size_t)layers + 1, sizeof(*seen));
  if (seen == NULL) return;
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    uint32_t layer = 0;
    if (layer_of(checkpoint->sites[i].prefix, &layer) && layer < layers) {
      seen[layer] = true;
    }
  }
  for (uint32_t i = 0; i < layers; i++) {
    if (seen[i]) continue;
    tool_problems_take(&inspection->problems,
                       tool_fail(error,
                                 "cannot accept %s: layer %" PRIu32
                                 ": expected an MLP site in each of %" PRIu32
                                 " layers, found none",
                                 checkpoint->files.path, i, layers),
                       error);
  }
  free(seen);
}

static void check_sites(struct tool_inspection* inspection,
                        struct tool_error* error) {
  const struct tool_checkpoint* checkpoint = inspection->checkpoint;
  bool checked[2] = {false, false};
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    const struct tool_site* site = &checkpoint->sites[i];
    if (!checked[site->config.kind]) {
      tool_problems_take(&inspection->problems,
                         check_config(&site->config, error), error);
    }
    checked[site->config.kind] = true;
    tool_problems_take(&inspection->problems,
                       check_kind(checkpoint, site, error), error);
  }
  if (checkpoint->whole && inspection->args->site == NULL) {
    check_layers(inspection, error);
  }
}

/* ---- what is there ---------------------------------------------------------------- */

static void find_tensors(struct tool_files* files, const struct tool_site* site,
                         const char* middle, uint32_t first, uint32_t count,
                         const struct tool_rule* rule,
                         struct tool_finding* finding) {
  char name[2 * TOOL_PREFIX_BYTES];
  struct tool_error ignored = {
      ""}; /* shards are open: their faults are known */
  *finding = (struct tool_finding){middle, rule->suffix, NULL, 0, count};
  for (uint32_t i = first; i < first + count; i++) {
    if (*middle == '\0') {
      snprintf(name, sizeof(name), "%s%s", site->prefix, rule->suffix);
    } else {
      snprintf(name, sizeof(name), "%s%s%" PRIu32 "%s", site->prefix,
               site->naming->experts, i, rule->suffix);
    }
    const struct tool_tensor* tensor = NULL;
    tool_files_find(files, name, &tensor, &ignored);
    if (tensor == NULL) continue;
    if (finding->tensor == NULL) finding->tensor = tensor;
    finding->found++;
  }
  if (rule->sigmoid_only && finding->found == 0 &&
      site->config.scoring == moeplan_scoring_softmax) {
    finding->expected = 0;
  }
}

size_t tool_inspect_site(struct tool_files* files, const struct tool_site* site,
                         struct tool_finding findings[TOOL_MAX_FINDINGS]) {
  const struct tool_naming* naming = site->naming;
  const bool dense = site->config.kind == moeplan_site_dense;
  const bool shared = !dense && site->config.shared_local_intermediate != 0;
  const struct {
    const struct tool_rules* rules;
    const char* middle;
    uint32_t count;
  } tables[] = {
      {&naming->dense, "", dense ? 1 : 0},
      {&naming->routed, "", dense ? 0 : 1},
      {&naming->expert, ".experts.*",
       dense ? 0 : site->config.n_routed_experts},
      {&naming->shared, "", shared ? 1 : 0},
  };
  size_t count = 0;
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    for (size_t j = 0; tables[i].count != 0 && j < tables[i].rules->count;
         j++) {
      find_tensors(files, site, tables[i].middle, 0, tables[i].count,
                   &tables[i].rules->rules[j], &findings[count]);
      if (findings[count].expected != 0) count++;
    }
  }
  return count;
}

/* ---- text -------------------------------------------------------------------------- */

static void print_site(struct tool_files* files, const struct tool_site* site,
                       FILE* out) {
  struct tool_finding findings[TOOL_MAX_FINDINGS];
  const size_t count = tool_inspect_site(files, site, findings);
  const bool dense = site->config.kind == moeplan_site_dense;
  fprintf(out, "site %s: %s", site->prefix, dense ? "dense" : "routed");
  if (!dense) {
    fprintf(out, ", %s names, %" PRIu32 " experts, top-%" PRIu32,
            site->naming->name, site->config.n_routed_experts,
            site->config.num_experts_per_tok);
  }
  fputc('\n', out);
  for (size_t i = 0; i < count; i++) {
    const struct tool_finding* finding = &findings[i];
    char shape[TOOL_SHAPE_TEXT] = "";
    const char* dtype = "none";
    if (finding->tensor != NULL) {
      dtype = tool_dtype_name(finding->tensor->dtype);
      tool_shape_text(finding->tensor->shape, finding->tensor->rank, shape);
    }
    fprintf(out, "  %s%s %s %s (%" PRIu32 " of %" PRIu32 ")\n", finding->middle,
            finding->suffix, dtype, shape, finding->found, finding->expected);
  }
  const struct tool_scale_range* range = &site->range;
  if (range->num_scales != 0) {
    fprintf(
        out, "  weight_scale_2 %.6g .. %.6g%s\n", (double)range->scale_min,
        (double)range->scale_max,
        site->naming == &tool_namings[0] ? "" : " (inverses of the file's)");
  }
  if (range->num_codes != 0) {
    fprintf(out, "  weight_scale 0x%02X (%g) .. 0x%02X (%g)\n", range->code_min,
            (double)tool_e4m3_value(range->code_min), range->code_max,
            (double)tool_e4m3_value(range->code_max));
  }
}

void tool_inspect_text(const struct tool_inspection* inspection, FILE* out) {
  struct tool_checkpoint* checkpoint = inspection->checkpoint;
  if (checkpoint != NULL) {
    fprintf(out, "checkpoint %s: %zu files, %zu tensors, %zu sites\n",
            checkpoint->files.path, checkpoint->files.num_shards,
            checkpoint->files.num_names, checkpoint->num_sites);
    for (size_t i = 0; i < checkpoint->num_sites; i++) {
      print_site(&checkpoint->files, &checkpoint->sites[i], out);
    }
  }
  const struct tool_problems* problems = &inspection->problems;
  for (size_t i = 0; i < problems->count; i++) {
    fprintf(out, "problem: %s\n", problems->lines[i]);
  }
  if (problems->left_out != 0) {
    fprintf(out, "problem: %zu more are left out\n", problems->left_out);
  }
}

/* ---- the command --------------------------------------------------------------------- */

static enum tool_status write_inspection(
    const struct tool_inspection* inspection, struct tool_error* error) {
  struct tool_output output;
  enum tool_status status = tool_output_open(&output, error);
  if (status != tool_ok) return status;
  if (inspection->args->json) {
    status = tool_inspect_json(inspection, output.stream, error);
  } else {
    tool_inspect_text(inspection, output.stream);
  }
  return tool_output_close(&output, status, error);
}

enum tool_status tool_inspect(const struct tool_args* args,
                              struct tool_error* error) {
  struct tool_checkpoint checkpoint;
  struct tool_inspection inspection = {.args = args};
  enum tool_status status =
      tool_load_checkpoint(args, &inspection.problems, &checkpoint, error);
  if (status == tool_ok) {
    inspection.checkpoint = &checkpoint;
    check_sites(&inspection, error);
  } else {
    /* Too broken to look into: one problem more. */
    status = tool_problems_take(&inspection.problems, status, error);
  }
  if (status == tool_ok) status = write_inspection(&inspection, error);
  const size_t count = inspection.problems.count + inspection.problems.left_out;
  if (status == tool_ok && count != 0) {
    status =
        tool_fail(error, "cannot accept %s: %zu %s, listed above",
                  args->checkpoint, count, count == 1 ? "problem" : "problems");
  }
  if (inspection.checkpoint != NULL) tool_checkpoint_close(&checkpoint);
  tool_problems_free(&inspection.problems);
  return status;
}
