#include "tools/presets.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One row of the table: hidden, experts, top-k and width of the routed experts;
 * number of shared experts (each as wide as a routed one); width of the dense
 * layers, how many come first, layers in all. */
#define SHAPE(hidden, experts, k, inter, shared, dense, first, layers, \
              scoring_, groups, of_groups, scale, limit)               \
  {                                                                    \
    .hidden_size = (hidden), .n_routed_experts = (experts),            \
    .num_experts_per_tok = (k), .moe_intermediate_size = (inter),      \
    .n_shared_experts = (shared), .intermediate_size = (dense),        \
    .first_k_dense_replace = (first), .num_hidden_layers = (layers),   \
    .scoring = moeplan_scoring_##scoring_, .n_group = (groups),        \
    .topk_group = (of_groups), .routed_scaling_factor = (scale),       \
    .swiglu_limit = (limit), .norm_topk_prob = true                    \
  }

/* clang-format off */
static const struct preset {
  const char* name;
  struct tool_shape shape;
} presets[] = {
    /* This project's target: 3 dense and 42 routed layers. */
    {"glm-5.3-flash",
     SHAPE(4096, 288, 8, 2048, 1, 12288, 3, 45, sigmoid, 1, 1, 2.5, 10.0)},
    /* zai-org/GLM-4.5, config.json; the same numbers in THUDM/slime,
     * scripts/models/glm4.5-355B-A32B.sh. */
    {"glm-4.5",
     SHAPE(5120, 160, 8, 1536, 1, 12288, 3, 92, sigmoid, 1, 1, 2.5, INFINITY)},
    /* zai-org/GLM-4.5-Air, config.json, as Glm4MoeConfig prints it. */
    {"glm-4.5-air",
     SHAPE(4096, 128, 8, 1408, 1, 10944, 1, 46, sigmoid, 1, 1, 1.0, INFINITY)},
    /* deepseek-ai/DeepSeek-V3, config.json. Its 8 expert groups, of which 4 are
     * chosen, are refused by the library. */
    {"deepseek-v3",
     SHAPE(7168, 256, 8, 2048, 1, 18432, 3, 61, sigmoid, 8, 4, 2.5, INFINITY)},
    /* moonshotai/Kimi-K2-Instruct, config.json (n_group 1). */
    {"kimi-k2",
     SHAPE(7168, 384, 8, 2048, 1, 18432, 1, 61, sigmoid, 1, 1, 2.827, INFINITY)},
    /* Qwen/Qwen3-235B-A22B, config.json; slime's qwen3-235B-A22B.sh. All of its
     * layers are routed. */
    {"qwen3-235b-a22b",
     SHAPE(4096, 128, 8, 1536, 0, 0, 0, 94, softmax, 1, 1, 1.0, INFINITY)},
    /* Qwen/Qwen3-30B-A3B, config.json; slime's qwen3-30B-A3B.sh. */
    {"qwen3-30b-a3b",
     SHAPE(2048, 128, 8, 768, 0, 0, 0, 48, softmax, 1, 1, 1.0, INFINITY)},
};
/* clang-format on */

enum { NUM_PRESETS = sizeof(presets) / sizeof(presets[0]) };

enum tool_status tool_preset_find(const char* name,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error) {
  char names[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < NUM_PRESETS; i++) {
    if (strcmp(name, presets[i].name) == 0) {
      *shape_out = presets[i].shape;
      return tool_ok;
    }
    used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                             i == 0 ? "" : ", ", presets[i].name);
  }
  return tool_refuse(error, "cannot use --preset %s: must be one of %s", name,
                     names);
}

void tool_presets_print(FILE* out) {
  for (size_t i = 0; i < NUM_PRESETS; i++) {
    const struct tool_shape* shape = &presets[i].shape;
    fprintf(out,
            "%-16s hidden %" PRIu32 ", %" PRIu32 " experts of %" PRIu32
            ", top-%" PRIu32 "\n",
            presets[i].name, shape->hidden_size, shape->n_routed_experts,
            shape->moe_intermediate_size, shape->num_experts_per_tok);
  }
}
