/* The model's shape under config.json's names: from a whole config.json, from
 * the metadata key "case" of a safetensors file, which holds such an object, or
 * from a preset. */

#ifndef MOEPLAN_TOOLS_SHAPE_H_
#define MOEPLAN_TOOLS_SHAPE_H_

#include <moeplan.h>

#include "tools/tool_error.h"

/* first_k_dense_replace where the text has none. */
#define TOOL_NO_DENSE_RULE UINT32_MAX

struct tool_shape {
  uint32_t hidden_size;
  uint32_t moe_intermediate_size;
  uint32_t n_routed_experts; /* 0: a model of dense sites */
  uint32_t num_experts_per_tok;
  uint32_t n_shared_experts;  /* 0 where the text has none */
  uint32_t intermediate_size; /* of dense sites */
  uint32_t n_group, topk_group;
  uint32_t num_hidden_layers; /* 0 where the text has none */
  uint32_t first_k_dense_replace;
  double routed_scaling_factor;
  double swiglu_limit; /* infinity where the text has none, or null */
  bool norm_topk_prob;
  enum moeplan_scoring scoring;
  /* Why the library computes something else than this model, though the sizes
   * are right; NULL where it does not. Static text. */
  const char* difference;
};

/* Read JSON text, whose own names for the fields decide by which table. `source`
 * names it in the sentence, after "cannot load". Keys of the other kind of site
 * may be missing: their fields are then 0. */
enum tool_status tool_shape_parse(const char* text, size_t bytes,
                                  const char* source,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error);

/* The same from a file. */
enum tool_status tool_shape_read(const char* path, struct tool_shape* shape_out,
                                 struct tool_error* error);

/* The whole site on one rank. max_rows keeps its default. */
void tool_shape_config(const struct tool_shape* shape,
                       enum moeplan_site_kind kind,
                       struct moeplan_config* config_out);

#endif /* MOEPLAN_TOOLS_SHAPE_H_ */
