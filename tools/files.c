#define _GNU_SOURCE

#include "tools/files.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/regular_file.h"

static enum tool_status no_memory(const char* path, struct tool_error* error) {
  return tool_fail(error, "cannot load %s: out of memory for its names", path);
}

/* folder + slash + name, to be freed; NULL: no memory. */
static char* join(const char* folder, const char* slash, const char* name) {
  const size_t bytes = strlen(folder) + strlen(slash) + strlen(name) + 1;
  char* path = malloc(bytes);
  if (path != NULL) snprintf(path, bytes, "%s%s%s", folder, slash, name);
  return path;
}

static bool is_index(const char* path) {
  const size_t length = strlen(path);
  return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

/* ---- where the files are ---------------------------------------------------- */

/* The file or index that `path` stands for, to be freed. */
static enum tool_status resolve(const char* path, char** resolved_out,
                                struct tool_error* error) {
  static const char* const candidates[] = {"model.safetensors.index.json",
                                           "model.safetensors"};
  struct stat about;
  char* resolved = NULL;
  const bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
  const char* slash = folder && path[strlen(path) - 1] == '/' ? "" : "/";
  if (!folder) {
    resolved = strdup(path);
    if (resolved == NULL) return no_memory(path, error);
  }
  for (size_t i = 0; folder && i < 2 && resolved == NULL; i++) {
    resolved = join(path, slash, candidates[i]);
    if (resolved == NULL) return no_memory(path, error);
    if (stat(resolved, &about) == 0) break;
    free(resolved);
    resolved = NULL;
  }
  if (resolved == NULL) {
    return tool_fail(error,
                     "cannot load %s: expected %s or %s in it, found a "
                     "directory with neither",
                     path, candidates[0], candidates[1]);
  }
  *resolved_out = resolved;
  return tool_ok;
}

static enum tool_status set_path(struct tool_files* files, const char* path,
                                 struct tool_error* error) {
  enum tool_status status = resolve(path, &files->path, error);
  if (status != tool_ok) return status;
  const char* slash = strrchr(files->path, '/');
  files->folder = slash == NULL
                      ? strdup("./")
                      : strndup(files->path, (size_t)(slash - files->path) + 1);
  return files->folder == NULL ? no_memory(path, error) : tool_ok;
}

/* ---- names -------------------------------------------------------------------- */

static int compare_names(const void* left, const void* right) {
  const struct tool_name* a = left;
  const struct tool_name* b = right;
  return strcmp(a->text, b->text);
}

static const struct tool_name* find_name(const struct tool_files* files,
                                         const char* text) {
  const struct tool_name key = {.text = text};
  return bsearch(&key, files->names, files->num_names, sizeof(key),
                 compare_names);
}

bool tool_files_has(const struct tool_files* files, const char* name) {
  return find_name(files, name) != NULL;
}

/* The names of a single file, which is open. */
static enum tool_status name_tensors(struct tool_files* files,
                                     struct tool_error* error) {
  const struct tool_safetensors* file = &files->shards[0].file;
  files->names = calloc(file->num_tensors + 1, sizeof(*files->names));
  if (files->names == NULL) return no_memory(files->path, error);
  for (size_t i = 0; i < file->num_tensors; i++) {
    files->names[i].text = file->tensors[i].name;
  }
  files->num_names = file->num_tensors;
  return tool_ok;
}

/* ---- the index ------------------------------------------------------------------ */

/* A plain name: nothing outside the index's folder can be meant. */
static bool is_plain_name(const char* name) {
  return name != NULL && name[0] != '\0' && strchr(name, '/') == NULL &&
         strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static enum tool_status append_shard(struct tool_files* files,
                                     const char* tensor, const char* name,
                                     struct tool_error* error) {
  struct stat about;
  if (files->num_shards == TOOL_MAX_SHARDS) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected at most %d shards, "
                     "found one more, %s",
                     files->path, tensor, TOOL_MAX_SHARDS, name);
  }
  char* path = join(files->folder, "", name);
  if (path == NULL) return no_memory(files->path, error);
  struct tool_shard* shard = &files->shards[files->num_shards];
  shard->path = path;
  files->num_shards++;
  if (stat(shard->path, &about) == 0) return tool_ok;
  shard->tried = true;
  return tool_fail(error,
                   "cannot load %s: tensor %s: expected its shard %s beside "
                   "the index, found: %s",
                   files->path, tensor, name, strerror(errno));
}

/* The number of the shard of this name; appends what is new. */
static enum tool_status find_shard(struct tool_files* files, const char* tensor,
                                   const char* name, uint32_t* number_out,
                                   struct tool_error* error) {
  const size_t prefix = strlen(files->folder);
  if (!is_plain_name(name)) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected the name of a file "
                     "beside the index, found %s",
                     files->path, tensor, name == NULL ? "no text" : name);
  }
  /* From the end: an index mostly names one shard many times in a row. */
  for (size_t i = files->num_shards; i > 0; i--) {
    /* Shards below num_shards have a path: append_shard sets it first. */
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
    if (strcmp(files->shards[i - 1].path + prefix, name) != 0) continue;
    *number_out = (uint32_t)(i - 1);
    return tool_ok;
  }
  const size_t known = files->num_shards;
  const enum tool_status status = tool_problems_take(
      files->problems, append_shard(files, tensor, name, error), error);
  /* A missing shard that was listed keeps its number: it is named once. */
  *number_out = (uint32_t)known;
  if (status != tool_ok || files->num_shards > known) return status;
  return tool_fail(error, "cannot load %s: tensor %s: no room for shard %s",
                   files->path, tensor, name);
}

static enum tool_status read_index(struct tool_files* files,
                                   struct tool_error* error) {
  /* The caller frees files->path, which the analyzer loses sight of here. */
  /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
  enum tool_status status = tool_file_read_json(
      files->path, TOOL_MAX_JSON_BYTES, &files->index, error);
  if (status != tool_ok) return status;
  json_t* map = json_object_get(files->index, "weight_map");
  if (!json_is_object(map)) {
    return tool_fail(error,
                     "cannot load %s: expected a JSON object \"weight_map\", "
                     "found %s",
                     files->path, map == NULL ? "none" : "another value");
  }
  files->shards = calloc(TOOL_MAX_SHARDS, sizeof(*files->shards));
  files->names = calloc(json_object_size(map) + 1, sizeof(*files->names));
  if (files->shards == NULL || files->names == NULL) {
    return no_memory(files->path, error);
  }
  const char* tensor = NULL;
  json_t* value = NULL;
  json_object_foreach(map, tensor, value) {
    uint32_t shard = 0;
    status = find_shard(files, tensor, json_string_value(value), &shard, error);
    if (status == tool_ok) {
      files->names[files->num_names] = (struct tool_name){tensor, shard};
      files->num_names++;
      continue;
    }
    status = tool_problems_take(files->problems, status, error);
    if (status != tool_ok) return status;
  }
  qsort(files->names, files->num_names, sizeof(*files->names), compare_names);
  return tool_ok;
}

/* ---- shards ---------------------------------------------------------------------- */

/* The index and the shard's header say the same. A tensor that the index does
 * not name is nobody's, as for other readers of the format. */
static enum tool_status check_shard(const struct tool_files* files,
                                    uint32_t number, struct tool_error* error) {
  const struct tool_shard* shard = &files->shards[number];
  enum tool_status status = tool_ok;
  for (size_t i = 0; i < shard->file.num_tensors && status == tool_ok; i++) {
    const char* text = shard->file.tensors[i].name;
    const struct tool_name* name = find_name(files, text);
    if (name == NULL || name->shard == number) continue;
    status = tool_fail(error,
                       "cannot load %s: tensor %s: expected it in %s alone, as "
                       "weight_map says, found it in this shard too",
                       shard->path, text, files->shards[name->shard].path);
    status = tool_problems_take(files->problems, status, error);
  }
  for (size_t i = 0; i < files->num_names && status == tool_ok; i++) {
    const struct tool_name* name = &files->names[i];
    if (name->shard != number ||
        tool_safetensors_find(&shard->file, name->text) != NULL) {
      continue;
    }
    status = tool_fail(error,
                       "cannot load %s: tensor %s: expected it in this shard, "
                       "as weight_map says, found no tensor of this name",
                       shard->path, name->text);
    status = tool_problems_take(files->problems, status, error);
  }
  return status;
}

static enum tool_status open_shard(struct tool_files* files, uint32_t number,
                                   struct tool_error* error) {
  struct tool_shard* shard = &files->shards[number];
  if (shard->tried) return tool_ok;
  shard->tried = true;
  enum tool_status status =
      tool_safetensors_open(shard->path, files->problems, &shard->file, error);
  if (status != tool_ok) {
    return tool_problems_take(files->problems, status, error);
  }
  shard->opened = true;
  return files->index == NULL ? tool_ok : check_shard(files, number, error);
}

enum tool_status tool_files_open_all(struct tool_files* files,
                                     struct tool_error* error) {
  for (size_t i = 0; i < files->num_shards; i++) {
    const enum tool_status status = open_shard(files, (uint32_t)i, error);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

enum tool_status tool_files_find(struct tool_files* files, const char* name,
                                 const struct tool_tensor** tensor_out,
                                 struct tool_error* error) {
  *tensor_out = NULL;
  const struct tool_name* found = find_name(files, name);
  if (found == NULL) return tool_ok;
  const enum tool_status status = open_shard(files, found->shard, error);
  const struct tool_shard* shard = &files->shards[found->shard];
  if (status == tool_ok && shard->opened) {
    *tensor_out = tool_safetensors_find(&shard->file, name);
  }
  return status;
}

/* ---- open, close ------------------------------------------------------------------ */

/* One file: its only shard, opened in place. */
static enum tool_status read_single(struct tool_files* files, const void* bytes,
                                    uint64_t size, struct tool_error* error) {
  files->shards = calloc(1, sizeof(*files->shards));
  if (files->shards == NULL) return no_memory(files->path, error);
  struct tool_shard* shard = &files->shards[0];
  files->num_shards = 1;
  shard->tried = true;
  shard->path = strdup(files->path);
  if (shard->path == NULL) return no_memory(files->path, error);
  const enum tool_status status =
      bytes == NULL
          ? tool_safetensors_open(shard->path, files->problems, &shard->file,
                                  error)
          : tool_safetensors_read(shard->path, bytes, size, files->problems,
                                  &shard->file, error);
  if (status != tool_ok) return status;
  shard->opened = true;
  return name_tensors(files, error);
}

enum tool_status tool_files_open(const char* path,
                                 struct tool_problems* problems,
                                 struct tool_files* files_out,
                                 struct tool_error* error) {
  struct tool_files files = {.problems = problems};
  enum tool_status status = set_path(&files, path, error);
  if (status == tool_ok) {
    status = is_index(files.path) ? read_index(&files, error)
                                  : read_single(&files, NULL, 0, error);
  }
  if (status == tool_ok) {
    *files_out = files;
  } else {
    tool_files_close(&files);
  }
  return status;
}

enum tool_status tool_files_read(const char* path, const void* bytes,
                                 uint64_t size, struct tool_problems* problems,
                                 struct tool_files* files_out,
                                 struct tool_error* error) {
  struct tool_files files = {
      .problems = problems, .path = strdup(path), .folder = strdup("./")};
  enum tool_status status = files.path == NULL || files.folder == NULL
                                ? no_memory(path, error)
                                : read_single(&files, bytes, size, error);
  if (status == tool_ok) {
    *files_out = files;
  } else {
    tool_files_close(&files);
  }
  return status;
}

void tool_files_close(struct tool_files* files) {
  for (size_t i = 0; i < files->num_shards; i++) {
    if (files->shards[i].opened) {
      tool_safetensors_close(&files->shards[i].file);
    }
    free(files->shards[i].path);
  }
  free(files->shards);
  free(files->names);
  free(files->path);
  free(files->folder);
  json_decref(files->index);
  *files = (struct tool_files){.path = NULL};
}

const char* tool_files_metadata(const struct tool_files* files,
                                const char* key) {
  if (files->index != NULL) {
    return json_string_value(
        json_object_get(json_object_get(files->index, "metadata"), key));
  }
  return tool_safetensors_metadata(&files->shards[0].file, key);
}
