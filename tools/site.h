/* One site of a checkpoint: its tensors found by rule (naming.h), checked, and
 * written down as the library's struct moeplan_site. */

#ifndef MOEPLAN_TOOLS_SITE_H_
#define MOEPLAN_TOOLS_SITE_H_

#include <moeplan.h>

#include "tools/files.h"
#include "tools/naming.h"
#include "tools/problems.h"
#include "tools/progress.h"
#include "tools/scales.h"
#include "tools/shape.h"
#include "tools/tool_error.h"

/* A tensor that the device needs. `slot` is the pointer to it, inside the
 * site's structures, of whatever pointer type. */
struct tool_piece {
  const struct tool_tensor* tensor;
  void* slot;
};

enum {
  TOOL_PREFIX_BYTES = 512,
  TOOL_MAX_EXPERTS = 1024, /* the library's limit */
};

struct tool_site {
  char prefix[TOOL_PREFIX_BYTES]; /* "model.layers.3.mlp" */
  struct moeplan_config config;
  const struct tool_naming* naming; /* of its experts */
  struct tool_scale_range range;    /* of its experts' scales */
  struct moeplan_site weights;      /* addresses in the map */
  const void** expert_addresses;    /* [TOOL_EXPERT_ADDRESSES, E] */
  float* expert_scales;             /* [TOOL_EXPERT_SCALES, E] */
  struct tool_piece* pieces;        /* every address in `weights` */
  size_t num_pieces;
  const struct tool_tensor* ids;       /* [rows, k] i32, ascending, or NULL */
  const struct tool_tensor* reference; /* [rows, H] f32, or NULL */
};

/* What loading a site works with. */
struct tool_site_source {
  struct tool_files* files;
  const struct tool_shape* shape;
  struct tool_problems* problems; /* NULL: the first fault ends it */
  struct tool_progress* progress; /* or NULL */
};

/* Load the site whose prefix, naming and config.kind are set. On failure it
 * holds what was allocated so far: tool_site_free in either case. With a list of
 * problems a faulty site is tool_ok too, and not to be run. It must not move
 * while its pieces are in use. */
enum tool_status tool_site_load(const struct tool_site_source* source,
                                struct tool_site* site,
                                struct tool_error* error);
void tool_site_free(struct tool_site* site);

#endif /* MOEPLAN_TOOLS_SITE_H_ */
