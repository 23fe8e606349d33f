/* A checkpoint: its sites as the library wants them, and the inputs and
 * expected outputs that a case file has beside them. Weights stay where they
 * are in the map; what is allocated is a few pointers per expert.
 *
 *   file -> shape (metadata "case") -> sites by name -> tensors by rule
 *
 * A later config.json replaces the second step (shape.h), a later naming the
 * tables of the third and fourth (naming.h), shards tool_safetensors_find. */

#ifndef MOEPLAN_TOOLS_CHECKPOINT_H_
#define MOEPLAN_TOOLS_CHECKPOINT_H_

#include <moeplan.h>

#include "tools/safetensors.h"
#include "tools/site.h"
#include "tools/tool_error.h"

struct tool_checkpoint {
  struct tool_safetensors file;
  struct tool_site* sites; /* in the order of their names and numbers */
  size_t num_sites;
  const struct tool_tensor* x; /* [rows, H] bf16, or NULL */
  uint32_t rows;               /* of x; 0 without */
};

/* Load all sites, or only the one named `site` ("model.layers.3.mlp", with or
 * without a dot at the end) unless that is NULL. Every tensor's dtype and shape
 * is checked, block scales for codes that are no scale, per-tensor scales for
 * being finite and 0 or more. Expected outputs count for the only site of their
 * kind in the file; where there are more, nobody knows whose they are. */
enum tool_status tool_checkpoint_open(const char* path, const char* site,
                                      struct tool_checkpoint* checkpoint_out,
                                      struct tool_error* error);
void tool_checkpoint_close(struct tool_checkpoint* checkpoint);

#endif /* MOEPLAN_TOOLS_CHECKPOINT_H_ */
