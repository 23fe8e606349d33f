/* A checkpoint: its sites as the library wants them, and the inputs and
 * expected outputs that a case file has beside them. Weights stay where they
 * are in the map; what is allocated is a few pointers per expert.
 *
 *   files -> shape -> sites by name -> tensors by rule
 *
 * The shape comes from the config file that the caller names, else from the
 * metadata key "case", else from config.json beside the files. */

#ifndef MOEPLAN_TOOLS_CHECKPOINT_H_
#define MOEPLAN_TOOLS_CHECKPOINT_H_

#include <moeplan.h>

#include "tools/files.h"
#include "tools/problems.h"
#include "tools/progress.h"
#include "tools/shape.h"
#include "tools/site.h"
#include "tools/tool_error.h"

struct tool_checkpoint {
  struct tool_files files;
  struct tool_shape shape;
  bool whole;              /* the shape is a config.json's: of all layers */
  struct tool_site* sites; /* in the order of their names and numbers */
  size_t num_sites;
  const struct tool_tensor* x; /* [rows, H] bf16, or NULL */
  uint32_t rows;               /* of x; 0 without */
};

/* What to load, and how. */
struct tool_load {
  const char* path;
  const char* site;   /* "model.layers.3.mlp", with a dot or not; NULL: all */
  const char* config; /* a config.json, or NULL */
  struct tool_problems* problems; /* NULL: the first fault ends it */
  struct tool_progress* progress; /* or NULL */
};

/* Every tensor's dtype and shape is checked, block scales for codes that are no
 * scale, per-tensor scales for being finite and 0 or more. Expected outputs
 * count for the only site of their kind in the checkpoint; where there are more,
 * nobody knows whose they are. With a list of problems the checkpoint is
 * there to be looked at, not to be run. */
enum tool_status tool_checkpoint_open(const struct tool_load* load,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error);

/* The same over one file's bytes in memory, which must outlive the result. */
enum tool_status tool_checkpoint_read(const struct tool_load* load,
                                      const void* bytes, uint64_t size,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error);
void tool_checkpoint_close(struct tool_checkpoint* checkpoint);

#endif /* MOEPLAN_TOOLS_CHECKPOINT_H_ */
