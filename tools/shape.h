/* The model's shape under config.json's names. Today it comes from the metadata
 * key "case" of a safetensors file; a config.json holds the same object. */

#ifndef MOEPLAN_TOOLS_SHAPE_H_
#define MOEPLAN_TOOLS_SHAPE_H_

#include <moeplan.h>

#include "tools/tool_error.h"

struct tool_shape {
  uint32_t hidden_size;
  uint32_t moe_intermediate_size;
  uint32_t n_routed_experts;
  uint32_t num_experts_per_tok;
  uint32_t n_shared_experts;  /* 0 where the text has none */
  uint32_t intermediate_size; /* of dense sites */
  uint32_t n_group, topk_group;
  double routed_scaling_factor;
  double swiglu_limit; /* infinity where the text has none, or null */
  bool norm_topk_prob;
  enum moeplan_scoring scoring;
};

/* Read JSON text. `source` names it in the sentence, after "cannot load". Keys
 * of the other kind of site may be missing: their fields are then 0. */
enum tool_status tool_shape_parse(const char* text, const char* source,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error);

/* The whole site on one rank. max_rows keeps its default. */
void tool_shape_config(const struct tool_shape* shape,
                       enum moeplan_site_kind kind,
                       struct moeplan_config* config_out);

#endif /* MOEPLAN_TOOLS_SHAPE_H_ */
