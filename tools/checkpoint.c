#define _GNU_SOURCE

#include "tools/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tool_site* find_site(const struct tool_checkpoint* checkpoint,
                                   const char* prefix, size_t bytes) {
  /* From the end: a site's tensors mostly follow one another. */
  for (size_t i = checkpoint->num_sites; i > 0; i--) {
    struct tool_site* site = &checkpoint->sites[i - 1];
    if (strlen(site->prefix) == bytes &&
        memcmp(site->prefix, prefix, bytes) == 0) {
      return site;
    }
  }
  return NULL;
}

static struct tool_site* append_site(struct tool_checkpoint* checkpoint) {
  const size_t count = checkpoint->num_sites + 1;
  struct tool_site* sites =
      reallocarray(checkpoint->sites, count, sizeof(*sites));
  if (sites == NULL) return NULL;
  checkpoint->sites = sites;
  checkpoint->num_sites = count;
  sites[count - 1] = (struct tool_site){.num_pieces = 0};
  return &sites[count - 1];
}

static int compare_sites(const void* left, const void* right) {
  const struct tool_site* a = left;
  const struct tool_site* b = right;
  return strverscmp(a->prefix, b->prefix);
}

/* A prefix with tensors of both kinds is a routed site: routed tensors say more
 * than gate_proj does. */
static enum tool_status collect_sites(const struct tool_naming* naming,
                                      struct tool_checkpoint* checkpoint,
                                      struct tool_error* error) {
  const struct tool_safetensors* file = &checkpoint->file;
  for (size_t i = 0; i < file->num_tensors; i++) {
    const char* name = file->tensors[i].name;
    size_t bytes = 0;
    enum moeplan_site_kind kind = moeplan_site_dense;
    if (!tool_naming_match(naming, name, &bytes, &kind)) continue;
    if (bytes >= TOOL_PREFIX_BYTES) {
      return tool_fail(
          error,
          "cannot load %s: tensor %s: expected a site's name below "
          "%d bytes, found %zu",
          file->path, name, TOOL_PREFIX_BYTES, bytes);
    }
    struct tool_site* site = find_site(checkpoint, name, bytes);
    const bool known = site != NULL;
    if (!known) site = append_site(checkpoint);
    if (site == NULL) {
      return tool_fail(error, "cannot load %s: out of memory for %zu sites",
                       file->path, checkpoint->num_sites + 1);
    }
    memcpy(site->prefix, name, bytes);
    if (!known || kind == moeplan_site_routed) site->config.kind = kind;
  }
  if (checkpoint->num_sites == 0) {
    return tool_fail(error,
                     "cannot load %s: expected the tensors of an MLP site by "
                     "%s names, found none among %zu tensors",
                     file->path, naming->name, file->num_tensors);
  }
  qsort(checkpoint->sites, checkpoint->num_sites, sizeof(*checkpoint->sites),
        compare_sites);
  return tool_ok;
}

/* The file's rows: [rows, H], at least one. */
static enum tool_status load_x(struct tool_checkpoint* checkpoint,
                               const struct tool_shape* shape,
                               struct tool_error* error) {
  const struct tool_safetensors* file = &checkpoint->file;
  const struct tool_tensor* x = tool_safetensors_find(file, tool_rule_x.suffix);
  if (x == NULL) return tool_ok;
  struct moeplan_config config;
  tool_shape_config(shape, moeplan_site_dense, &config);
  uint64_t dims[tool_dim_count];
  const uint64_t rows = x->rank == 2 ? x->shape[0] : 0;
  const bool countable = rows >= 1 && rows <= 1 << 20;
  tool_dims_fill(&config, countable ? (uint32_t)rows : 1, dims);
  const enum tool_status status =
      tool_rule_check(&tool_rule_x, dims, file, x, error);
  if (status != tool_ok) return status;
  checkpoint->x = x;
  checkpoint->rows = (uint32_t)rows;
  return tool_ok;
}

static enum tool_status load_expected(const struct tool_checkpoint* checkpoint,
                                      const struct tool_rule* rule,
                                      const struct tool_site* site,
                                      const struct tool_tensor** tensor_out,
                                      struct tool_error* error) {
  const struct tool_safetensors* file = &checkpoint->file;
  const struct tool_tensor* tensor = tool_safetensors_find(file, rule->suffix);
  if (tensor == NULL) return tool_ok;
  uint64_t dims[tool_dim_count];
  tool_dims_fill(&site->config, checkpoint->rows, dims);
  const enum tool_status status =
      tool_rule_check(rule, dims, file, tensor, error);
  if (status == tool_ok) *tensor_out = tensor;
  return status;
}

/* Keep the wanted site alone. Nothing of a site is allocated yet. */
static enum tool_status pick_site(struct tool_checkpoint* checkpoint,
                                  const char* wanted,
                                  struct tool_error* error) {
  size_t bytes = strlen(wanted);
  if (bytes > 0 && wanted[bytes - 1] == '.') bytes--;
  const struct tool_site* site = find_site(checkpoint, wanted, bytes);
  if (site == NULL) {
    const size_t last = checkpoint->num_sites - 1;
    return tool_fail(error,
                     "cannot find site %s in %s: expected one of its %zu "
                     "sites, %s .. %s",
                     wanted, checkpoint->file.path, last + 1,
                     checkpoint->sites[0].prefix,
                     checkpoint->sites[last].prefix);
  }
  checkpoint->sites[0] = *site;
  checkpoint->num_sites = 1;
  return tool_ok;
}

static enum tool_status load_sites(struct tool_checkpoint* checkpoint,
                                   const struct tool_naming* naming,
                                   const struct tool_shape* shape,
                                   const size_t kind_count[2],
                                   struct tool_error* error) {
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    struct tool_site* site = &checkpoint->sites[i];
    enum tool_status status =
        tool_site_load(&checkpoint->file, naming, shape, site, error);
    if (status != tool_ok) return status;
    const enum moeplan_site_kind kind = site->config.kind;
    if (checkpoint->x == NULL || kind_count[kind] != 1) continue;
    status = load_expected(checkpoint, &tool_rule_reference[kind], site,
                           &site->reference, error);
    if (status == tool_ok && kind == moeplan_site_routed) {
      status = load_expected(checkpoint, &tool_rule_router_ids, site,
                             &site->ids, error);
    }
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

static enum tool_status load_shape(const struct tool_safetensors* file,
                                   struct tool_shape* shape_out,
                                   struct tool_error* error) {
  const char* text = tool_safetensors_metadata(file, "case");
  if (text == NULL) {
    return tool_fail(error,
                     "cannot load %s: expected the model's shape in the "
                     "metadata key \"case\", found no such text",
                     file->path);
  }
  return tool_shape_parse(text, file->path, shape_out, error);
}

enum tool_status tool_checkpoint_open(const char* path, const char* site,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error) {
  const struct tool_naming* naming = &tool_naming_modelopt;
  struct tool_checkpoint checkpoint = {.x = NULL};
  struct tool_shape shape;
  size_t kind_count[2] = {0, 0};
  enum tool_status status =
      tool_safetensors_open(path, &checkpoint.file, error);
  if (status != tool_ok) return status;
  status = load_shape(&checkpoint.file, &shape, error);
  if (status != tool_ok) goto close_checkpoint;
  status = collect_sites(naming, &checkpoint, error);
  if (status != tool_ok) goto close_checkpoint;
  for (size_t i = 0; i < checkpoint.num_sites; i++) {
    kind_count[checkpoint.sites[i].config.kind]++;
  }
  if (site != NULL) status = pick_site(&checkpoint, site, error);
  if (status != tool_ok) goto close_checkpoint;
  status = load_x(&checkpoint, &shape, error);
  if (status != tool_ok) goto close_checkpoint;
  status = load_sites(&checkpoint, naming, &shape, kind_count, error);
  if (status != tool_ok) goto close_checkpoint;
  *checkpoint_out = checkpoint;
  return tool_ok; /* handed over */
close_checkpoint:
  tool_checkpoint_close(&checkpoint);
  return status;
}

void tool_checkpoint_close(struct tool_checkpoint* checkpoint) {
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    tool_site_free(&checkpoint->sites[i]);
  }
  free(checkpoint->sites);
  checkpoint->sites = NULL;
  checkpoint->num_sites = 0;
  tool_safetensors_close(&checkpoint->file);
}
