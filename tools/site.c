#define _GNU_SOURCE

#include "tools/site.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 2 * TOOL_PREFIX_BYTES };

/* One site being loaded. */
struct loader {
  const struct tool_site_source* source;
  struct tool_site* site;
  uint64_t dims[tool_dim_count];
  struct tool_error* error;
};

/* Go on if there is a list of problems. */
static enum tool_status pass(const struct loader* loader,
                             enum tool_status status) {
  return tool_problems_take(loader->source->problems, status, loader->error);
}

static const char* path_of(const struct loader* loader) {
  return loader->source->files->path;
}

/* Note where the tensor is, and where its device address belongs. */
static void add_piece(struct tool_site* site, const struct tool_tensor* tensor,
                      void* slot) {
  const void* address = tensor->data;
  memcpy(slot, &address, sizeof(address));
  site->pieces[site->num_pieces] = (struct tool_piece){tensor, slot};
  site->num_pieces++;
}

static enum tool_status missing(const struct loader* loader, const char* name,
                                const struct tool_rule* rule) {
  if (rule->sigmoid_only &&
      loader->site->config.scoring == moeplan_scoring_softmax) {
    return tool_ok;
  }
  /* The names have it: what is wrong with its shard is in the list already. */
  if (tool_files_has(loader->source->files, name)) return tool_ok;
  return tool_fail(loader->error,
                   "cannot load %s: tensor %s: expected %s, found no tensor "
                   "of this name",
                   path_of(loader), name, tool_dtype_name(rule->dtype));
}

/* Check the contents of a tensor of the right type, and keep it. */
static enum tool_status keep(const struct loader* loader,
                             const struct tool_rule* rule,
                             const struct tool_tensor* tensor, void* slot) {
  struct tool_scale_range* range = &loader->site->range;
  if (tool_content_is_value(rule->content)) {
    return tool_scales_read(tensor, rule->content, range, slot, loader->error);
  }
  enum tool_status status = tool_tensor_check(tensor, loader->error);
  if (status == tool_ok && rule->content == tool_content_scale_codes) {
    status = tool_scales_check_codes(tensor, range, loader->error);
    tool_progress_add(loader->source->progress, tensor->bytes);
  }
  if (status == tool_ok) add_piece(loader->site, tensor, slot);
  return status;
}

static enum tool_status load_tensor(const struct loader* loader,
                                    const char* middle,
                                    const struct tool_rule* rule, void* slot) {
  char name[NAME_BYTES];
  snprintf(name, sizeof(name), "%s%s%s", loader->site->prefix, middle,
           rule->suffix);
  const struct tool_tensor* tensor = NULL;
  enum tool_status status =
      tool_files_find(loader->source->files, name, &tensor, loader->error);
  if (status == tool_ok && tensor == NULL) {
    status = missing(loader, name, rule);
  } else if (status == tool_ok) {
    status = tool_rule_check(rule, loader->dims, tensor, loader->error);
    if (status == tool_ok) status = keep(loader, rule, tensor, slot);
  }
  return pass(loader, status);
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

/* An expert that is missing altogether is one fault, not nine. */
static bool has_any(const struct loader* loader, const char* middle) {
  const struct tool_rules* rules = &loader->site->naming->expert;
  char name[NAME_BYTES];
  for (size_t i = 0; i < rules->count; i++) {
    snprintf(name, sizeof(name), "%s%s%s", loader->site->prefix, middle,
             rules->rules[i].suffix);
    if (tool_files_has(loader->source->files, name)) return true;
  }
  return false;
}

static enum tool_status load_expert(const struct loader* loader,
                                    uint32_t expert) {
  const struct tool_naming* naming = loader->site->naming;
  const size_t experts = loader->site->config.n_routed_experts;
  char middle[64];
  snprintf(middle, sizeof(middle), "%s%" PRIu32, naming->experts, expert);
  if (!has_any(loader, middle)) {
    return pass(
        loader,
        tool_fail(loader->error,
                  "cannot load %s: tensor %s%s%s: expected %zu experts "
                  "by %s names, found no tensor of this one",
                  path_of(loader), loader->site->prefix, middle,
                  naming->expert.rules[0].suffix, experts, naming->name));
  }
  for (size_t i = 0; i < naming->expert.count; i++) {
    const struct tool_rule* rule = &naming->expert.rules[i];
    const size_t at = rule->where * experts + expert;
    void* slot = tool_content_is_value(rule->content)
                     ? (void*)&loader->site->expert_scales[at]
                     : (void*)&loader->site->expert_addresses[at];
    const enum tool_status status = load_tensor(loader, middle, rule, slot);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

/* A tensor that the shape leaves no place for: of an expert past the last one,
 * or of a shared expert where there is none. */
static enum tool_status check_surplus(const struct loader* loader,
                                      const char* name) {
  const struct tool_site* site = loader->site;
  const char* rest = name + strlen(site->prefix);
  const char* experts = site->naming->experts;
  if (strncmp(rest, experts, strlen(experts)) == 0 &&
      strtoul(rest + strlen(experts), NULL, 10) >=
          site->config.n_routed_experts) {
    return tool_fail(loader->error,
                     "cannot load %s: tensor %s: expected experts below "
                     "n_routed_experts %" PRIu32 ", found this one",
                     path_of(loader), name, site->config.n_routed_experts);
  }
  if (site->config.shared_local_intermediate == 0 &&
      strcmp(rest, site->naming->shared.rules[0].suffix) == 0) {
    return tool_fail(loader->error,
                     "cannot load %s: tensor %s: expected no shared expert "
                     "with n_shared_experts 0, found one",
                     path_of(loader), name);
  }
  return tool_ok;
}

static enum tool_status check_all_surplus(const struct loader* loader) {
  const struct tool_files* files = loader->source->files;
  const size_t length = strlen(loader->site->prefix);
  for (size_t i = 0; i < files->num_names; i++) {
    const char* name = files->names[i].text;
    if (strncmp(name, loader->site->prefix, length) != 0) continue;
    const enum tool_status status = pass(loader, check_surplus(loader, name));
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

static enum tool_status load_routed(const struct loader* loader) {
  struct tool_site* site = loader->site;
  const size_t experts = site->config.n_routed_experts;
  site->expert_addresses = calloc(TOOL_EXPERT_ADDRESSES * experts + 1,
                                  sizeof(*site->expert_addresses));
  site->expert_scales =
      calloc(TOOL_EXPERT_SCALES * experts + 1, sizeof(*site->expert_scales));
  if (site->expert_addresses == NULL || site->expert_scales == NULL) {
    return tool_fail(loader->error, "cannot load %s: out of memory for %zu %s",
                     path_of(loader), experts, "experts");
  }
  struct moeplan_projection* const projections[] = {
      &site->weights.gate, &site->weights.up, &site->weights.down};
  for (size_t i = 0; i < 3; i++) {
    projections[i]->weight = &site->expert_addresses[2 * i * experts];
    projections[i]->weight_scale =
        &site->expert_addresses[(2 * i + 1) * experts];
    projections[i]->weight_scale_2 = &site->expert_scales[i * experts];
  }
  enum tool_status status = check_all_surplus(loader);
  if (status == tool_ok) status = load_rules(loader, &site->naming->routed);
  if (status == tool_ok && site->config.shared_local_intermediate != 0) {
    status = load_rules(loader, &site->naming->shared);
  }
  for (uint32_t i = 0; i < experts && status == tool_ok; i++) {
    status = load_expert(loader, i);
  }
  return status;
}

enum tool_status tool_site_load(const struct tool_site_source* source,
                                struct tool_site* site,
                                struct tool_error* error) {
  struct loader loader = {source, site, {0}, error};
  const struct tool_naming* naming = site->naming;
  tool_shape_config(source->shape, site->config.kind, &site->config);
  if (site->config.kind == moeplan_site_routed &&
      (site->config.n_routed_experts == 0 ||
       site->config.n_routed_experts > TOOL_MAX_EXPERTS)) {
    return pass(&loader,
                tool_fail(error,
                          "cannot load %s: site %s: expected 1..%d "
                          "experts, found a shape with %" PRIu32,
                          path_of(&loader), site->prefix, TOOL_MAX_EXPERTS,
                          site->config.n_routed_experts));
  }
  tool_dims_fill(&site->config, 0, loader.dims);
  site->weights = (struct moeplan_site)MOEPLAN_SITE_INIT;
  site->pieces =
      calloc(naming->routed.count + naming->shared.count + naming->dense.count +
                 (size_t)TOOL_EXPERT_ADDRESSES * site->config.n_routed_experts,
             sizeof(*site->pieces));
  if (site->pieces == NULL) {
    return tool_fail(error, "cannot load %s: out of memory for site %s",
                     path_of(&loader), site->prefix);
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
