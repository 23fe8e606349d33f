#define _GNU_SOURCE

#include "tools/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Note which naming a tensor of the site tells of. */
static enum tool_status note_naming(const struct tool_checkpoint* checkpoint,
                                    struct tool_site* site, const char* name,
                                    struct tool_error* error) {
  for (size_t i = 0; i < TOOL_NUM_NAMINGS; i++) {
    const struct tool_naming* naming = &tool_namings[i];
    if (!tool_naming_tells(naming, name) || site->naming == naming) continue;
    if (site->naming != NULL) {
      return tool_fail(error,
                       "cannot load %s: tensor %s: expected site %s by %s "
                       "names, found this one by %s names",
                       checkpoint->files.path, name, site->prefix,
                       site->naming->name, naming->name);
    }
    site->naming = naming;
  }
  return tool_ok;
}

/* A prefix with tensors of both kinds is a routed site: routed tensors say more
 * than gate_proj does. */
static enum tool_status note_name(struct tool_checkpoint* checkpoint,
                                  const char* name, struct tool_error* error) {
  const char* path = checkpoint->files.path;
  size_t bytes = 0;
  enum moeplan_site_kind kind = moeplan_site_dense;
  if (!tool_naming_match(&tool_namings[0], name, &bytes, &kind)) return tool_ok;
  if (bytes >= TOOL_PREFIX_BYTES) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected a site's name below "
                     "%d bytes, found %zu",
                     path, name, TOOL_PREFIX_BYTES, bytes);
  }
  struct tool_site* site = find_site(checkpoint, name, bytes);
  const bool known = site != NULL;
  if (!known) site = append_site(checkpoint);
  if (site == NULL) {
    return tool_fail(error, "cannot load %s: out of memory for %zu sites", path,
                     checkpoint->num_sites + 1);
  }
  memcpy(site->prefix, name, bytes);
  if (!known || kind == moeplan_site_routed) site->config.kind = kind;
  return note_naming(checkpoint, site, name, error);
}

static enum tool_status collect_sites(struct tool_checkpoint* checkpoint,
                                      struct tool_error* error) {
  const struct tool_files* files = &checkpoint->files;
  for (size_t i = 0; i < files->num_names; i++) {
    const enum tool_status status = tool_problems_take(
        files->problems, note_name(checkpoint, files->names[i].text, error),
        error);
    if (status != tool_ok) return status;
  }
  if (checkpoint->num_sites == 0) {
    return tool_fail(error,
                     "cannot load %s: expected the tensors of an MLP site by "
                     "%s or %s names, found none among %zu tensors",
                     files->path, tool_namings[0].name, tool_namings[1].name,
                     files->num_names);
  }
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    struct tool_site* site = &checkpoint->sites[i];
    if (site->naming == NULL) site->naming = &tool_namings[0];
  }
  qsort(checkpoint->sites, checkpoint->num_sites, sizeof(*checkpoint->sites),
        compare_sites);
  return tool_ok;
}

/* The file's rows: [rows, H], at least one. */
static enum tool_status load_x(struct tool_checkpoint* checkpoint,
                               struct tool_error* error) {
  const struct tool_tensor* x = NULL;
  enum tool_status status =
      tool_files_find(&checkpoint->files, tool_rule_x.suffix, &x, error);
  if (status != tool_ok || x == NULL) return status;
  struct moeplan_config config;
  tool_shape_config(&checkpoint->shape, moeplan_site_dense, &config);
  uint64_t dims[tool_dim_count];
  const uint64_t rows = x->rank == 2 ? x->shape[0] : 0;
  const bool countable = rows >= 1 && rows <= 1 << 20;
  tool_dims_fill(&config, countable ? (uint32_t)rows : 1, dims);
  status = tool_rule_check(&tool_rule_x, dims, x, error);
  if (status != tool_ok) return status;
  checkpoint->x = x;
  checkpoint->rows = (uint32_t)rows;
  return tool_ok;
}

static enum tool_status load_expected(struct tool_checkpoint* checkpoint,
                                      const struct tool_rule* rule,
                                      const struct tool_site* site,
                                      const struct tool_tensor** tensor_out,
                                      struct tool_error* error) {
  const struct tool_tensor* tensor = NULL;
  enum tool_status status =
      tool_files_find(&checkpoint->files, rule->suffix, &tensor, error);
  if (status != tool_ok || tensor == NULL) return status;
  uint64_t dims[tool_dim_count];
  tool_dims_fill(&site->config, checkpoint->rows, dims);
  status = tool_rule_check(rule, dims, tensor, error);
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
                     wanted, checkpoint->files.path, last + 1,
                     checkpoint->sites[0].prefix,
                     checkpoint->sites[last].prefix);
  }
  checkpoint->sites[0] = *site;
  checkpoint->num_sites = 1;
  return tool_ok;
}

/* The expected outputs of the only site of a kind. */
static enum tool_status load_expectations(struct tool_checkpoint* checkpoint,
                                          struct tool_site* site,
                                          struct tool_error* error) {
  const enum moeplan_site_kind kind = site->config.kind;
  enum tool_status status = load_expected(
      checkpoint, &tool_rule_reference[kind], site, &site->reference, error);
  if (status == tool_ok && kind == moeplan_site_routed) {
    status = load_expected(checkpoint, &tool_rule_router_ids, site, &site->ids,
                           error);
  }
  return status;
}

static enum tool_status load_sites(const struct tool_load* load,
                                   struct tool_checkpoint* checkpoint,
                                   const size_t kind_count[2],
                                   struct tool_error* error) {
  const struct tool_site_source source = {
      &checkpoint->files, &checkpoint->shape, load->problems, load->progress};
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    struct tool_site* site = &checkpoint->sites[i];
    tool_progress_site(load->progress, i + 1, checkpoint->num_sites);
    enum tool_status status = tool_site_load(&source, site, error);
    if (status != tool_ok) return status;
    if (checkpoint->x == NULL || kind_count[site->config.kind] != 1) continue;
    status = tool_problems_take(
        load->problems, load_expectations(checkpoint, site, error), error);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

/* config.json beside the files, to be freed; NULL if there is none. */
static char* find_config(const struct tool_files* files) {
  char* path = NULL;
  if (asprintf(&path, "%sconfig.json", files->folder) < 0) return NULL;
  if (access(path, F_OK) == 0) return path;
  free(path);
  return NULL;
}

static enum tool_status load_shape(const struct tool_load* load,
                                   struct tool_checkpoint* checkpoint,
                                   struct tool_error* error) {
  struct tool_shape* shape = &checkpoint->shape;
  const struct tool_files* files = &checkpoint->files;
  const char* text = tool_files_metadata(files, "case");
  enum tool_status status = tool_ok;
  if (load->config != NULL) {
    checkpoint->whole = true;
    status = tool_shape_read(load->config, shape, error);
  } else if (text != NULL) {
    status = tool_shape_parse(text, strlen(text), files->path, shape, error);
  } else {
    char* beside = find_config(files);
    if (beside == NULL) {
      return tool_fail(error,
                       "cannot load %s: expected the model's shape in the "
                       "metadata key \"case\" or in config.json beside it, "
                       "found no such text",
                       files->path);
    }
    checkpoint->whole = true;
    status = tool_shape_read(beside, shape, error);
    free(beside);
  }
  if (status != tool_ok || shape->difference == NULL) return status;
  return tool_problems_take(
      load->problems,
      tool_fail(error,
                "cannot load %s: expected a model as moeplan.h has it, "
                "found another: %s",
                files->path, shape->difference),
      error);
}

/* Everything after the files. */
static enum tool_status load_all(const struct tool_load* load,
                                 struct tool_checkpoint* checkpoint,
                                 struct tool_error* error) {
  size_t kind_count[2] = {0, 0};
  enum tool_status status = load_shape(load, checkpoint, error);
  if (status == tool_ok) status = collect_sites(checkpoint, error);
  if (status != tool_ok) return status;
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    kind_count[checkpoint->sites[i].config.kind]++;
  }
  if (load->site != NULL) status = pick_site(checkpoint, load->site, error);
  if (status != tool_ok) return status;
  status = tool_problems_take(load->problems, load_x(checkpoint, error), error);
  if (status != tool_ok) return status;
  return load_sites(load, checkpoint, kind_count, error);
}

/* Load what the files hold and hand it over, or close it. */
static enum tool_status finish(enum tool_status status,
                               const struct tool_load* load,
                               struct tool_checkpoint* checkpoint,
                               struct tool_checkpoint* checkpoint_out,
                               struct tool_error* error) {
  if (status != tool_ok) return status; /* no files: nothing is held */
  /* Whoever wants to know all that is wrong wants every shard looked at. */
  if (load->problems != NULL) {
    status = tool_files_open_all(&checkpoint->files, error);
  }
  if (status == tool_ok) status = load_all(load, checkpoint, error);
  if (status == tool_ok) {
    *checkpoint_out = *checkpoint;
  } else {
    tool_checkpoint_close(checkpoint);
  }
  return status;
}

enum tool_status tool_checkpoint_open(const struct tool_load* load,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error) {
  struct tool_checkpoint checkpoint = {.x = NULL};
  const enum tool_status status =
      tool_files_open(load->path, load->problems, &checkpoint.files, error);
  return finish(status, load, &checkpoint, checkpoint_out, error);
}

enum tool_status tool_checkpoint_read(const struct tool_load* load,
                                      const void* bytes, uint64_t size,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error) {
  struct tool_checkpoint checkpoint = {.x = NULL};
  const enum tool_status status = tool_files_read(
      load->path, bytes, size, load->problems, &checkpoint.files, error);
  return finish(status, load, &checkpoint, checkpoint_out, error);
}

void tool_checkpoint_close(struct tool_checkpoint* checkpoint) {
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    tool_site_free(&checkpoint->sites[i]);
  }
  free(checkpoint->sites);
  tool_files_close(&checkpoint->files);
  *checkpoint = (struct tool_checkpoint){.x = NULL};
}
