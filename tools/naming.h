/* How checkpoints name the tensors of a site, as tables: a naming is a struct
 * tool_naming. */

#ifndef MOEPLAN_TOOLS_NAMING_H_
#define MOEPLAN_TOOLS_NAMING_H_

#include <moeplan.h>

#include "tools/safetensors.h"

/* Extents that a shape is made of. */
enum tool_dim {
  tool_dim_rows,
  tool_dim_hidden,
  tool_dim_hidden_bytes,  /* hidden / 2: two weights a byte */
  tool_dim_hidden_blocks, /* hidden / 16: weights per block scale */
  tool_dim_inter,
  tool_dim_inter_bytes,
  tool_dim_inter_blocks,
  tool_dim_experts,
  tool_dim_topk,
  tool_dim_shared,
  tool_dim_dense,
  tool_dim_count
};

/* What a tensor holds and hence how it reaches the site. */
enum tool_content {
  tool_content_plain,       /* by address */
  tool_content_scale_codes, /* by address; every byte is 0x00..0x7E */
  tool_content_scale,       /* by value: one float32, finite, 0 or more */
  tool_content_inverse,     /* by value: 1 / one float32, finite, above 0 */
};

static inline bool tool_content_is_value(enum tool_content content) {
  return content == tool_content_scale || content == tool_content_inverse;
}

/* One tensor. `where` is, in a site's table, the offset of its address in
 * struct moeplan_site; in an expert's table, the number of its array: of
 * tool_site.expert_addresses, or of expert_scales for what comes by value. */
struct tool_rule {
  const char* suffix; /* after the site's prefix, or after the expert's */
  enum tool_dtype dtype;
  enum tool_content content;
  uint32_t rank;
  enum tool_dim shape[2];
  size_t where;
  bool sigmoid_only; /* softmax sites may lack it */
};

struct tool_rules {
  const struct tool_rule* rules;
  size_t count;
};

/* The arrays that an expert's tensors go to. */
enum {
  tool_gate_weight,
  tool_gate_scale,
  tool_up_weight,
  tool_up_scale,
  tool_down_weight,
  tool_down_scale,
  TOOL_EXPERT_ADDRESSES,
  tool_gate_scale_2 = 0,
  tool_up_scale_2,
  tool_down_scale_2,
  TOOL_EXPERT_SCALES,
};

/* A tensor whose name holds `text` belongs to a site of this kind, named by
 * what stands before it. The first that matches counts. */
struct tool_marker {
  const char* text;
  enum moeplan_site_kind kind;
};

struct tool_naming {
  const char* name;
  const char* tell; /* ends the name of some tensor of each expert, and of none
                     * in another naming */
  const struct tool_marker* markers;
  size_t num_markers;
  const char* experts;      /* between a prefix and an expert's number */
  struct tool_rules routed; /* once a routed site */
  struct tool_rules expert; /* once an expert */
  struct tool_rules shared; /* once a routed site that has a shared expert */
  struct tool_rules dense;  /* once a dense site */
};

/* The first is assumed where no tell is found. Markers are the same in all. */
enum { TOOL_NUM_NAMINGS = 2 };
extern const struct tool_naming tool_namings[TOOL_NUM_NAMINGS];

/* Is the tensor of a site, of which kind, and how long is the site's name? */
bool tool_naming_match(const struct tool_naming* naming, const char* name,
                       size_t* prefix_bytes_out,
                       enum moeplan_site_kind* kind_out);

/* Does the name end in the naming's tell? */
bool tool_naming_tells(const struct tool_naming* naming, const char* name);

/* The extents of a site's tensors, and of a file's rows. */
void tool_dims_fill(const struct moeplan_config* config, uint32_t rows,
                    uint64_t dims[tool_dim_count]);

/* Compare dtype and shape with the rule. [1] passes for a scalar. */
enum tool_status tool_rule_check(const struct tool_rule* rule,
                                 const uint64_t dims[tool_dim_count],
                                 const struct tool_tensor* tensor,
                                 struct tool_error* error);

/* Inputs and expected outputs beside the weights, by whole names. */
extern const struct tool_rule tool_rule_x;
extern const struct tool_rule tool_rule_router_ids;
extern const struct tool_rule tool_rule_reference[]; /* by site kind */

#endif /* MOEPLAN_TOOLS_NAMING_H_ */
