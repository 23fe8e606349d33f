#define _GNU_SOURCE

#include "tools/site.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 2 * TOOL_PREFIX_BYTES, CODE_MAX = 0x7E };

/* One site being loaded. */
struct loader {
  const struct tool_safetensors* file;
  const struct tool_naming* naming;
  struct tool_site* site;
  uint64_t dims[tool_dim_count];
  struct tool_error* error;
};

static enum tool_status check_codes(const struct loader* loader,
                                    const struct tool_tensor* tensor) {
  for (uint64_t i = 0; i < tensor->bytes; i++) {
    const unsigned code = tensor->data[i];
    if (code <= CODE_MAX) continue;
    return tool_fail(loader->error,
                     "cannot load %s: tensor %s: expected E4M3 block scales, "
                     "codes 0x00..0x7E, found 0x%02X, %s, at byte %" PRIu64,
                     loader->file->path, tensor->name, code,
                     (code & 0x7F) == 0x7F ? "a NaN" : "a negative number", i);
  }
  return tool_ok;
}

static enum tool_status read_scale(const struct loader* loader,
                                   const struct tool_tensor* tensor,
                                   float* scale_out) {
  float scale = 0.0f;
  memcpy(&scale, tensor->data, sizeof(scale));
  if (!(isfinite(scale) && scale >= 0.0f)) {
    return tool_fail(loader->error,
                     "cannot load %s: tensor %s: expected a finite scale, 0 or "
                     "more, found %g",
                     loader->file->path, tensor->name, (double)scale);
  }
  *scale_out = scale;
  return tool_ok;
}

/* Note where the tensor is, and where its device address belongs. */
static void add_piece(struct tool_site* site, const struct tool_tensor* tensor,
                      void* slot) {
  const void* address = tensor->data;
  memcpy(slot, &address, sizeof(address));
  site->pieces[site->num_pieces] = (struct tool_piece){tensor, slot};
  site->num_pieces++;
}

static enum tool_status load_tensor(const struct loader* loader,
                                    const char* middle,
                                    const struct tool_rule* rule, void* slot) {
  char name[NAME_BYTES];
  snprintf(name, sizeof(name), "%s%s%s", loader->site->prefix, middle,
           rule->suffix);
  const struct tool_tensor* tensor = tool_safetensors_find(loader->file, name);
  const struct moeplan_config* config = &loader->site->config;
  if (tensor == NULL) {
    if (rule->sigmoid_only && config->scoring == moeplan_scoring_softmax) {
      return tool_ok;
    }
    return tool_fail(loader->error,
                     "cannot load %s: tensor %s: expected %s, found no tensor "
                     "of this name",
                     loader->file->path, name, tool_dtype_name(rule->dtype));
  }
  enum tool_status status =
      tool_rule_check(rule, loader->dims, loader->file, tensor, loader->error);
  if (status != tool_ok) return status;
  if (rule->content == tool_content_scale) {
    return read_scale(loader, tensor, slot);
  }
  if (rule->content == tool_content_scale_codes) {
    status = check_codes(loader, tensor);
    if (status != tool_ok) return status;
  }
  add_piece(loader->site, tensor, slot);
  return tool_ok;
}

static enum tool_status load_rules(const struct loader* loader,
                                   const struct tool_rules* rules) {
  for (size_t i = 0; i < rules->count; i++) {
    const struct tool_rule* rule = &rules->rules[i];
    const enum tool_status status = load_tensor(
        loader, "", rule, (char*)&loader->site->weights + rule->where);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

static enum tool_status load_expert(const struct loader* loader,
                                    uint32_t expert) {
  const struct tool_rules* rules = &loader->naming->expert;
  const size_t experts = loader->site->config.n_routed_experts;
  char middle[64];
  snprintf(middle, sizeof(middle), "%s%" PRIu32, loader->naming->experts,
           expert);
  for (size_t i = 0; i < rules->count; i++) {
    const struct tool_rule* rule = &rules->rules[i];
    const size_t at = rule->where * experts + expert;
    void* slot = rule->content == tool_content_scale
                     ? (void*)&loader->site->expert_scales[at]
                     : (void*)&loader->site->expert_addresses[at];
    const enum tool_status status = load_tensor(loader, middle, rule, slot);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

/* Tensors that the shape leaves no place for: experts past the last one, or a
 * shared expert where there is none. */
static enum tool_status check_surplus(const struct loader* loader) {
  const struct tool_site* site = loader->site;
  char start[NAME_BYTES];
  const size_t length = (size_t)snprintf(start, sizeof(start), "%s%s",
                                         site->prefix, loader->naming->experts);
  char shared[NAME_BYTES];
  snprintf(shared, sizeof(shared), "%s%s", site->prefix,
           loader->naming->shared.rules[0].suffix);
  for (size_t i = 0; i < loader->file->num_tensors; i++) {
    const char* name = loader->file->tensors[i].name;
    if (strncmp(name, start, length) == 0 &&
        strtoul(name + length, NULL, 10) >= site->config.n_routed_experts) {
      return tool_fail(loader->error,
                       "cannot load %s: tensor %s: expected experts below "
                       "n_routed_experts %" PRIu32 ", found this one",
                       loader->file->path, name, site->config.n_routed_experts);
    }
    if (site->config.shared_local_intermediate == 0 &&
        strcmp(name, shared) == 0) {
      return tool_fail(loader->error,
                       "cannot load %s: tensor %s: expected no shared expert "
                       "with n_shared_experts 0, found one",
                       loader->file->path, name);
    }
  }
  return tool_ok;
}

static enum tool_status load_routed(const struct loader* loader) {
  struct tool_site* site = loader->site;
  const struct tool_naming* naming = loader->naming;
  const size_t experts = site->config.n_routed_experts;
  site->expert_addresses = calloc(TOOL_EXPERT_ADDRESSES * experts + 1,
                                  sizeof(*site->expert_addresses));
  site->expert_scales =
      calloc(TOOL_EXPERT_SCALES * experts + 1, sizeof(*site->expert_scales));
  if (site->expert_addresses == NULL || site->expert_scales == NULL) {
    return tool_fail(loader->error, "cannot load %s: out of memory for %zu %s",
                     loader->file->path, experts, "experts");
  }
  struct moeplan_projection* const projections[] = {
      &site->weights.gate, &site->weights.up, &site->weights.down};
  for (size_t i = 0; i < 3; i++) {
    projections[i]->weight = &site->expert_addresses[2 * i * experts];
    projections[i]->weight_scale =
        &site->expert_addresses[(2 * i + 1) * experts];
    projections[i]->weight_scale_2 = &site->expert_scales[i * experts];
  }
  enum tool_status status = check_surplus(loader);
  if (status == tool_ok) status = load_rules(loader, &naming->routed);
  if (status == tool_ok && site->config.shared_local_intermediate != 0) {
    status = load_rules(loader, &naming->shared);
  }
  for (uint32_t i = 0; i < experts && status == tool_ok; i++) {
    status = load_expert(loader, i);
  }
  return status;
}

enum tool_status tool_site_load(const struct tool_safetensors* file,
                                const struct tool_naming* naming,
                                const struct tool_shape* shape,
                                struct tool_site* site,
                                struct tool_error* error) {
  struct loader loader = {file, naming, site, {0}, error};
  tool_shape_config(shape, site->config.kind, &site->config);
  tool_dims_fill(&site->config, 0, loader.dims);
  site->weights = (struct moeplan_site)MOEPLAN_SITE_INIT;
  site->pieces =
      calloc(naming->routed.count + naming->shared.count + naming->dense.count +
                 (size_t)TOOL_EXPERT_ADDRESSES * site->config.n_routed_experts,
             sizeof(*site->pieces));
  if (site->pieces == NULL) {
    return tool_fail(error, "cannot load %s: out of memory for site %s",
                     file->path, site->prefix);
  }
  if (site->config.kind == moeplan_site_dense) {
    return load_rules(&loader, &naming->dense);
  }
  return load_routed(&loader);
}

void tool_site_free(struct tool_site* site) {
  free(site->expert_addresses);
  free(site->expert_scales);
  free(site->pieces);
  site->expert_addresses = NULL;
  site->expert_scales = NULL;
  site->pieces = NULL;
  site->num_pieces = 0;
}
