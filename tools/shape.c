#include "tools/shape.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum field_type { field_count, field_number, field_flag, field_scoring };

struct field {
  const char* key;
  enum field_type type;
  size_t offset;
  bool required;
};

#define FIELD(key, type, required) \
  { #key, type, offsetof(struct tool_shape, key), required }

/* What a checkpoint says and this table does not know is left alone. */
static const struct field fields[] = {
    FIELD(hidden_size, field_count, true),
    FIELD(moe_intermediate_size, field_count, false),
    FIELD(n_routed_experts, field_count, false),
    FIELD(num_experts_per_tok, field_count, false),
    FIELD(n_shared_experts, field_count, false),
    FIELD(intermediate_size, field_count, false),
    FIELD(n_group, field_count, false),
    FIELD(topk_group, field_count, false),
    FIELD(routed_scaling_factor, field_number, false),
    FIELD(swiglu_limit, field_number, false),
    FIELD(norm_topk_prob, field_flag, false),
    {"scoring_func", field_scoring, offsetof(struct tool_shape, scoring),
     false},
};

static const char* const type_rules[] = {
    [field_count] = "a whole number, 0..1048576",
    [field_number] = "a finite number",
    [field_flag] = "true or false",
    [field_scoring] = "\"sigmoid\" or \"softmax\"",
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

static bool (*const readers[])(const json_t* value, void* out) = {
    [field_count] = read_count,
    [field_number] = read_number,
    [field_flag] = read_flag,
    [field_scoring] = read_scoring,
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

enum tool_status tool_shape_parse(const char* text, const char* source,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error) {
  json_error_t fault;
  json_t* object = json_loads(text, JSON_REJECT_DUPLICATES, &fault);
  if (!json_is_object(object)) {
    json_decref(object);
    return tool_fail(error,
                     "cannot load %s: expected the shape as a JSON object, "
                     "found %s",
                     source, object == NULL ? fault.text : "another value");
  }
  struct tool_shape shape = {
      .n_group = 1,
      .topk_group = 1,
      .routed_scaling_factor = 1.0,
      .swiglu_limit = INFINITY,
      .norm_topk_prob = true,
  };
  enum tool_status status = tool_ok;
  for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
    status = read_field(object, source, &fields[i], &shape, error);
    if (status != tool_ok) goto free_object;
  }
  *shape_out = shape;
free_object:
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
