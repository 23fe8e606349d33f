#include "tools/naming.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define RULES(array) \
  { array, COUNT(array) }

/* A tensor of the site, which goes to `member` of struct moeplan_site. */
#define PLAIN(suffix, type, rank, rows, columns, member) \
  {                                                      \
    suffix, tool_dtype_##type, tool_content_plain, rank, \
        {tool_dim_##rows, tool_dim_##columns},           \
        offsetof(struct moeplan_site, member), false     \
  }

/* The three tensors of one NVFP4 projection [rows, columns]: the suffixes of the
 * weights and of the tensor's scale, and how the latter is to be read. */
#define NVFP4(weight, scale, content, name, rows, columns)        \
  {"." #name "_proj." weight,                                     \
   tool_dtype_u8,                                                 \
   tool_content_plain,                                            \
   2,                                                             \
   {tool_dim_##rows, tool_dim_##columns##_bytes},                 \
   tool_##name##_weight,                                          \
   false},                                                        \
      {"." #name "_proj.weight_scale",                            \
       tool_dtype_f8_e4m3,                                        \
       tool_content_scale_codes,                                  \
       2,                                                         \
       {tool_dim_##rows, tool_dim_##columns##_blocks},            \
       tool_##name##_scale,                                       \
       false},                                                    \
  {                                                               \
    "." #name "_proj." scale, tool_dtype_f32, content, 0, {0, 0}, \
        tool_##name##_scale_2, false                              \
  }

#define EXPERT(weight, scale, content)                      \
  {                                                         \
    NVFP4(weight, scale, content, gate, inter, hidden),     \
        NVFP4(weight, scale, content, up, inter, hidden),   \
        NVFP4(weight, scale, content, down, hidden, inter), \
  }

static const struct tool_marker site_markers[] = {
    {".experts.", moeplan_site_routed},
    {".shared_experts.", moeplan_site_routed},
    {".gate.e_score_correction_bias", moeplan_site_routed},
    {".gate_proj.", moeplan_site_dense},
    {".up_proj.", moeplan_site_dense},
    {".down_proj.", moeplan_site_dense},
};

/* clang-format off */
static const struct tool_rule routed_rules[] = {
    PLAIN(".gate.weight", bf16, 2, experts, hidden, router),
    {".gate.e_score_correction_bias", tool_dtype_f32, tool_content_plain, 1,
     {tool_dim_experts, 0}, offsetof(struct moeplan_site, router_bias), true},
};

/* NVIDIA ModelOpt: a weight is code * weight_scale * weight_scale_2. */
static const struct tool_rule modelopt_expert[] =
    EXPERT("weight", "weight_scale_2", tool_content_scale);

/* vLLM's compressed-tensors: weight_global_scale is 448 * 6 / the tensor's
 * largest magnitude, hence a weight is code * weight_scale / weight_global_scale.
 * (CompressedTensorsW4A16Fp4 of vLLM takes 1 / it in float32, and so do we.) */
static const struct tool_rule compressed_expert[] =
    EXPERT("weight_packed", "weight_global_scale", tool_content_inverse);

static const struct tool_rule shared_rules[] = {
    PLAIN(".shared_experts.gate_proj.weight", bf16, 2, shared, hidden,
          shared.gate),
    PLAIN(".shared_experts.up_proj.weight", bf16, 2, shared, hidden, shared.up),
    PLAIN(".shared_experts.down_proj.weight", bf16, 2, hidden, shared,
          shared.down),
};

static const struct tool_rule dense_rules[] = {
    PLAIN(".gate_proj.weight", bf16, 2, dense, hidden, dense.gate),
    PLAIN(".up_proj.weight", bf16, 2, dense, hidden, dense.up),
    PLAIN(".down_proj.weight", bf16, 2, hidden, dense, dense.down),
};
/* clang-format on */

#define NAMING(title, suffix, experts_)                         \
  {                                                             \
    .name = (title), .tell = (suffix), .markers = site_markers, \
    .num_markers = COUNT(site_markers), .experts = ".experts.", \
    .routed = RULES(routed_rules), .expert = RULES(experts_),   \
    .shared = RULES(shared_rules), .dense = RULES(dense_rules)  \
  }

const struct tool_naming tool_namings[TOOL_NUM_NAMINGS] = {
    NAMING("ModelOpt", ".weight_scale_2", modelopt_expert),
    NAMING("compressed-tensors", ".weight_packed", compressed_expert),
};

const struct tool_rule tool_rule_x = {
    .suffix = "input.x",
    .dtype = tool_dtype_bf16,
    .rank = 2,
    .shape = {tool_dim_rows, tool_dim_hidden}};

const struct tool_rule tool_rule_router_ids = {
    .suffix = "expect.router.ids",
    .dtype = tool_dtype_i32,
    .rank = 2,
    .shape = {tool_dim_rows, tool_dim_topk}};

const struct tool_rule tool_rule_reference[] = {
    [moeplan_site_routed] = {.suffix = "expect.moe.ref_f32",
                             .dtype = tool_dtype_f32,
                             .rank = 2,
                             .shape = {tool_dim_rows, tool_dim_hidden}},
    [moeplan_site_dense] = {.suffix = "expect.dense.ref_f32",
                            .dtype = tool_dtype_f32,
                            .rank = 2,
                            .shape = {tool_dim_rows, tool_dim_hidden}},
};

bool tool_naming_match(const struct tool_naming* naming, const char* name,
                       size_t* prefix_bytes_out,
                       enum moeplan_site_kind* kind_out) {
  for (size_t i = 0; i < naming->num_markers; i++) {
    const char* found = strstr(name, naming->markers[i].text);
    if (found == NULL || found == name) continue;
    *prefix_bytes_out = (size_t)(found - name);
    *kind_out = naming->markers[i].kind;
    return true;
  }
  return false;
}

bool tool_naming_tells(const struct tool_naming* naming, const char* name) {
  const size_t length = strlen(name);
  const size_t tell = strlen(naming->tell);
  return length > tell && strcmp(name + length - tell, naming->tell) == 0;
}

void tool_dims_fill(const struct moeplan_config* config, uint32_t rows,
                    uint64_t dims[tool_dim_count]) {
  const uint64_t hidden = config->hidden_size;
  const uint64_t inter = config->moe_intermediate_size;
  const uint64_t filled[tool_dim_count] = {
      [tool_dim_rows] = rows,
      [tool_dim_hidden] = hidden,
      [tool_dim_hidden_bytes] = hidden / 2,
      [tool_dim_hidden_blocks] = hidden / config->expert_group_size,
      [tool_dim_inter] = inter,
      [tool_dim_inter_bytes] = inter / 2,
      [tool_dim_inter_blocks] = inter / config->expert_group_size,
      [tool_dim_experts] = config->n_routed_experts,
      [tool_dim_topk] = config->num_experts_per_tok,
      [tool_dim_shared] = config->shared_local_intermediate,
      [tool_dim_dense] = config->dense_local_intermediate,
  };
  memcpy(dims, filled, sizeof(filled));
}

enum tool_status tool_rule_check(const struct tool_rule* rule,
                                 const uint64_t dims[tool_dim_count],
                                 const struct tool_tensor* tensor,
                                 struct tool_error* error) {
  uint64_t shape[2] = {0, 0};
  bool same = tensor->rank == rule->rank && tensor->dtype == rule->dtype;
  for (uint32_t i = 0; i < rule->rank; i++) {
    shape[i] = dims[rule->shape[i]];
    same = same && tensor->shape[i] == shape[i];
  }
  if (rule->rank == 0 && tensor->rank == 1 && tensor->shape[0] == 1) {
    same = tensor->dtype == rule->dtype;
  }
  if (same) return tool_ok;
  char expected[TOOL_SHAPE_TEXT];
  char found[TOOL_SHAPE_TEXT];
  return tool_fail(
      error, "cannot load %s: tensor %s: expected %s %s, found %s %s",
      tensor->file->path, tensor->name, tool_dtype_name(rule->dtype),
      tool_shape_text(shape, rule->rank, expected),
      tool_dtype_name(tensor->dtype),
      tool_shape_text(tensor->shape, tensor->rank, found));
}
