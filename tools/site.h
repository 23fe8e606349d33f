/* One site of a checkpoint: its tensors found by rule (naming.h), checked, and
 * written down as the library's struct moeplan_site. */

#ifndef MOEPLAN_TOOLS_SITE_H_
#define MOEPLAN_TOOLS_SITE_H_

#include <moeplan.h>

#include "tools/naming.h"
#include "tools/safetensors.h"
#include "tools/shape.h"
#include "tools/tool_error.h"

/* A tensor that the device needs. `slot` is the pointer to it, inside the
 * site's structures, of whatever pointer type. */
struct tool_piece {
  const struct tool_tensor* tensor;
  void* slot;
};

enum { TOOL_PREFIX_BYTES = 512 };

struct tool_site {
  char prefix[TOOL_PREFIX_BYTES]; /* "model.layers.3.mlp" */
  struct moeplan_config config;
  struct moeplan_site weights;   /* addresses in the map */
  const void** expert_addresses; /* [TOOL_EXPERT_ADDRESSES, E] */
  float* expert_scales;          /* [TOOL_EXPERT_SCALES, E] */
  struct tool_piece* pieces;     /* every address in `weights` */
  size_t num_pieces;
  const struct tool_tensor* ids;       /* [rows, k] i32, ascending, or NULL */
  const struct tool_tensor* reference; /* [rows, H] f32, or NULL */
};

/* Load the site whose prefix and config.kind are set. On failure it holds what
 * was allocated so far: tool_site_free in either case. It must not move while
 * its pieces are in use. */
enum tool_status tool_site_load(const struct tool_safetensors* file,
                                const struct tool_naming* naming,
                                const struct tool_shape* shape,
                                struct tool_site* site,
                                struct tool_error* error);
void tool_site_free(struct tool_site* site);

#endif /* MOEPLAN_TOOLS_SITE_H_ */
