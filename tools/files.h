/* The files of a checkpoint as one name space: a safetensors file, or the shards
 * of a model.safetensors.index.json.
 *
 *   {"metadata": {...}, "weight_map": {name: "model-00001-of-00002.safetensors"}}
 *
 * A shard is mapped when one of its tensors is first asked for; the names are
 * known from the index before that. */

#ifndef MOEPLAN_TOOLS_FILES_H_
#define MOEPLAN_TOOLS_FILES_H_

#include <stdbool.h>

#include "tools/problems.h"
#include "tools/safetensors.h"

enum {
  TOOL_MAX_SHARDS = 4096,
  TOOL_MAX_JSON_BYTES = 100000000, /* of an index or a config.json */
};

struct tool_shard {
  char* path;
  bool tried;  /* to open it */
  bool opened; /* with success: `file` is set */
  struct tool_safetensors file;
};

struct tool_name {
  const char* text;
  uint32_t shard;
};

struct tool_files {
  char* path;           /* the file, or the index */
  char* folder;         /* that it lies in, with a slash at the end */
  struct json_t* index; /* owns the names; NULL for one file */
  struct tool_shard* shards;
  size_t num_shards;
  struct tool_name* names; /* ascending */
  size_t num_names;
  struct tool_problems* problems; /* the caller's, or NULL */
};

/* `path` is a safetensors file, an index (a name that ends in ".json"), or a
 * folder that holds model.safetensors.index.json or else model.safetensors.
 * Every shard of an index is a plain file name and is there. */
enum tool_status tool_files_open(const char* path,
                                 struct tool_problems* problems,
                                 struct tool_files* files_out,
                                 struct tool_error* error);

/* One file over bytes in memory, which must outlive the result. */
enum tool_status tool_files_read(const char* path, const void* bytes,
                                 uint64_t size, struct tool_problems* problems,
                                 struct tool_files* files_out,
                                 struct tool_error* error);
void tool_files_close(struct tool_files* files);

/* The tensor, or NULL if there is none of this name. Opens its shard: that may
 * fail. Each tensor of the shard must be where weight_map says, and nowhere
 * else. */
enum tool_status tool_files_find(struct tool_files* files, const char* name,
                                 const struct tool_tensor** tensor_out,
                                 struct tool_error* error);

/* Is there a tensor of this name, by the names alone? */
bool tool_files_has(const struct tool_files* files, const char* name);

/* Open what is not open yet. */
enum tool_status tool_files_open_all(struct tool_files* files,
                                     struct tool_error* error);

/* A text of the metadata, of a file or of an index; NULL if there is none. */
const char* tool_files_metadata(const struct tool_files* files,
                                const char* key);

#endif /* MOEPLAN_TOOLS_FILES_H_ */
