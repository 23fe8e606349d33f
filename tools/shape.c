#include "tools/shape.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "tools/regular_file.h"

enum field_type {
  field_count,
  field_number,
  field_flag,
  field_scoring,
  field_silu,        /* checked, not kept */
  field_none_shared, /* checked, not kept */
};

struct field {
  const char* key;
  enum field_type type;
  size_t offset;
  bool required;
};

#define FIELD(key, type, member) \
  { key, field_##type, offsetof(struct tool_shape, member), false }
#define SAME(type, member) FIELD(#member, type, member)
#define CHECK(key, type) \
  { key, field_##type, 0, false }

struct fields {
  const struct field* fields;
  size_t count;
};

#define FIELDS(array) \
  { array, sizeof(array) / sizeof((array)[0]) }

/* What a text says and no table knows is left alone. */
static const struct field common_fields[] = {
    {"hidden_size", field_count, offsetof(struct tool_shape, hidden_size),
     true},
    SAME(count, num_hidden_layers),
    SAME(count, num_experts_per_tok),
    SAME(number, swiglu_limit),
    SAME(flag, norm_topk_prob),
    CHECK("hidden_act", silu),
};

/* DeepSeek-V2 and -V3, GLM-4.5 and -5, Kimi-K2. */
static const struct field deepseek_fields[] = {
    SAME(count, n_routed_experts),
    SAME(count, moe_intermediate_size),
    SAME(count, n_shared_experts),
    SAME(count, intermediate_size),
    SAME(count, first_k_dense_replace),
    SAME(count, n_group),
    SAME(count, topk_group),
    SAME(number, routed_scaling_factor),
    FIELD("scoring_func", scoring, scoring),
};

/* Qwen3-MoE: softmax; Qwen2-MoE's shared expert has a gate of its own. */
static const struct field qwen_fields[] = {
    FIELD("num_experts", count, n_routed_experts),
    SAME(count, moe_intermediate_size),
    SAME(count, intermediate_size),
    CHECK("shared_expert_intermediate_size", none_shared),
};

/* gpt-oss: softmax over the chosen logits, which is softmax over all of them
 * with norm_topk_prob. */
static const struct field gpt_oss_fields[] = {
    FIELD("num_local_experts", count, n_routed_experts),
    FIELD("experts_per_token", count, num_experts_per_tok),
    FIELD("intermediate_size", count, moe_intermediate_size),
};

#define DEFAULTS(scoring_, norm)                                               \
  {                                                                            \
    .n_group = 1, .topk_group = 1,                                             \
    .first_k_dense_replace = TOOL_NO_DENSE_RULE, .routed_scaling_factor = 1.0, \
    .swiglu_limit = INFINITY, .norm_topk_prob = (norm),                        \
    .scoring = moeplan_scoring_##scoring_                                      \
  }

/* The names by which a kind of model says its shape, and what holds where it
 * says nothing. The first whose key the text has is taken, else the last. */
static const struct name_set {
  const char* key;
  const char* value; /* that the key has; NULL: any */
  struct fields fields;
  struct tool_shape defaults;
  const char* difference;
} name_sets[] = {
    {"model_type", "gpt_oss", FIELDS(gpt_oss_fields), DEFAULTS(softmax, true),
     "gpt-oss has MXFP4 weights, biases and a SwiGLU of its own"},
    {"num_experts", NULL, FIELDS(qwen_fields), DEFAULTS(softmax, false), NULL},
    {"n_routed_experts", NULL, FIELDS(deepseek_fields), DEFAULTS(sigmoid, true),
     NULL},
};

enum { NUM_NAME_SETS = sizeof(name_sets) / sizeof(name_sets[0]) };

static const char* const type_rules[] = {
    [field_count] = "a whole number, 0..1048576",
    [field_number] = "a finite number",
    [field_flag] = "true or false",
    [field_scoring] = "\"sigmoid\" or \"softmax\"",
    [field_silu] = "\"silu\"",
    [field_none_shared] = "0 (a shared expert with a gate is not supported)",
};

static bool read_count(const json_t* value, void* out) {
  const json_int_t count = json_integer_value(value);
  if (!json_is_integer(value) || count < 0 || count > 1 << 20) return false;
  *(uint32_t*)out = (uint32_t)count;
  return true;
}

static bool read_number(const json_t* value, void* out) {
  if (!json_is_number(value)) return false;
  *(double*)out = json_number_value(value);
  return true;
}

static bool read_flag(const json_t* value, void* out) {
  if (!json_is_boolean(value)) return false;
  *(bool*)out = json_is_true(value);
  return true;
}

static bool read_scoring(const json_t* value, void* out) {
  const char* text = json_string_value(value);
  if (text == NULL) return false;
  const bool softmax = strcmp(text, "softmax") == 0;
  if (!softmax && strcmp(text, "sigmoid") != 0) return false;
  *(enum moeplan_scoring*)out =
      softmax ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
  return true;
}

static bool read_silu(const json_t* value, void* out) {
  (void)out;
  const char* text = json_string_value(value);
  return text != NULL && strcmp(text, "silu") == 0;
}

static bool read_none_shared(const json_t* value, void* out) {
  (void)out;
  return json_is_integer(value) && json_integer_value(value) == 0;
}

static bool (*const readers[])(const json_t* value, void* out) = {
    [field_count] = read_count, [field_number] = read_number,
    [field_flag] = read_flag,   [field_scoring] = read_scoring,
    [field_silu] = read_silu,   [field_none_shared] = read_none_shared,
};

static enum tool_status read_field(const json_t* object, const char* source,
                                   const struct field* field,
                                   struct tool_shape* shape,
                                   struct tool_error* error) {
  const json_t* value = json_object_get(object, field->key);
  const bool given = value != NULL && !json_is_null(value);
  if (!given && !field->required) return tool_ok;
  if (given && readers[field->type](value, (char*)shape + field->offset)) {
    return tool_ok;
  }
  char* found = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
  const enum tool_status status = tool_fail(
      error, "cannot load %s: expected %s to be %s, found %.200s", source,
      field->key, type_rules[field->type], found == NULL ? "nothing" : found);
  free(found);
  return status;
}

static const struct name_set* find_name_set(const json_t* object) {
  for (size_t i = 0; i + 1 < NUM_NAME_SETS; i++) {
    const json_t* value = json_object_get(object, name_sets[i].key);
    if (value == NULL) continue;
    const char* text = json_string_value(value);
    const char* wanted = name_sets[i].value;
    if (wanted == NULL || (text != NULL && strcmp(text, wanted) == 0)) {
      return &name_sets[i];
    }
  }
  return &name_sets[NUM_NAME_SETS - 1];
}

static enum tool_status read_fields(const json_t* object, const char* source,
                                    const struct fields* fields,
                                    struct tool_shape* shape,
                                    struct tool_error* error) {
  for (size_t i = 0; i < fields->count; i++) {
    const enum tool_status status =
        read_field(object, source, &fields->fields[i], shape, error);
    if (status != tool_ok) return status;
  }
  return tool_ok;
}

static enum tool_status read_shape(const json_t* object, const char* source,
                                   struct tool_shape* shape_out,
                                   struct tool_error* error) {
  static const struct fields common = FIELDS(common_fields);
  /* Models that also see keep the language model's shape one level down. */
  const json_t* inner = json_object_get(object, "text_config");
  if (json_is_object(inner) && json_object_get(object, "hidden_size") == NULL) {
    object = inner;
  }
  const struct name_set* set = find_name_set(object);
  struct tool_shape shape = set->defaults;
  shape.difference = set->difference;
  enum tool_status status = read_fields(object, source, &common, &shape, error);
  if (status == tool_ok) {
    status = read_fields(object, source, &set->fields, &shape, error);
  }
  if (status == tool_ok) *shape_out = shape;
  return status;
}

enum tool_status tool_shape_parse(const char* text, size_t bytes,
                                  const char* source,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error) {
  json_t* object = NULL;
  enum tool_status status =
      tool_json_parse(text, bytes, source, &object, error);
  if (status != tool_ok) return status;
  status = read_shape(object, source, shape_out, error);
  json_decref(object);
  return status;
}

enum tool_status tool_shape_read(const char* path, struct tool_shape* shape_out,
                                 struct tool_error* error) {
  enum { MAX_BYTES = 16 << 20 };
  json_t* object = NULL;
  enum tool_status status =
      tool_file_read_json(path, MAX_BYTES, &object, error);
  if (status != tool_ok) return status;
  status = read_shape(object, path, shape_out, error);
  json_decref(object);
  return status;
}

void tool_shape_config(const struct tool_shape* shape,
                       enum moeplan_site_kind kind,
                       struct moeplan_config* config_out) {
  struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.kind = kind;
  config.hidden_size = shape->hidden_size;
  config.swiglu_limit = (float)shape->swiglu_limit;
  if (kind == moeplan_site_dense) {
    config.dense_local_intermediate = shape->intermediate_size;
  } else {
    config.moe_intermediate_size = shape->moe_intermediate_size;
    config.n_routed_experts = shape->n_routed_experts;
    config.num_experts_per_tok = shape->num_experts_per_tok;
    config.n_group = shape->n_group;
    config.topk_group = shape->topk_group;
    config.shared_local_intermediate =
        shape->n_shared_experts * shape->moe_intermediate_size;
    config.scoring = shape->scoring;
    config.norm_topk_prob = shape->norm_topk_prob;
    config.routed_scaling_factor = (float)shape->routed_scaling_factor;
  }
  *config_out = config;
}
