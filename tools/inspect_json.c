/* What inspect lists, as one JSON document. */

#include <jansson.h>
#include <stdio.h>

#include "tools/inspect.h"

/* Names and paths are bytes; JSON wants UTF-8. */
static json_t* text_or_null(const char* text) {
  json_t* string = text == NULL ? NULL : json_string(text);
  return string == NULL ? json_null() : string;
}

static json_t* shape_json(const struct tool_tensor* tensor) {
  if (tensor == NULL) return json_null();
  json_t* shape = json_array();
  for (uint32_t i = 0; i < tensor->rank; i++) {
    json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
  }
  return shape;
}

static json_t* finding_json(const struct tool_finding* finding) {
  const struct tool_tensor* tensor = finding->tensor;
  return json_pack(
      "{s:s+, s:o, s:o, s:I, s:I}", "name", finding->middle, finding->suffix,
      "dtype",
      text_or_null(tensor == NULL ? NULL : tool_dtype_name(tensor->dtype)),
      "shape", shape_json(tensor), "found", (json_int_t)finding->found,
      "expected", (json_int_t)finding->expected);
}

static json_t* range_json(const struct tool_scale_range* range) {
  json_t* object = json_object();
  if (range->num_scales != 0) {
    json_object_set_new(object, "weight_scale_2",
                        json_pack("[f, f]", (double)range->scale_min,
                                  (double)range->scale_max));
  }
  if (range->num_codes != 0) {
    json_object_set_new(
        object, "weight_scale_codes",
        json_pack("[i, i]", (int)range->code_min, (int)range->code_max));
  }
  return object;
}

static json_t* site_json(struct tool_files* files,
                         const struct tool_site* site) {
  struct tool_finding findings[TOOL_MAX_FINDINGS];
  const size_t count = tool_inspect_site(files, site, findings);
  json_t* tensors = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(tensors, finding_json(&findings[i]));
  }
  const bool dense = site->config.kind == moeplan_site_dense;
  return json_pack("{s:o, s:s, s:o, s:I, s:I, s:o, s:o}", "site",
                   text_or_null(site->prefix), "kind",
                   dense ? "dense" : "routed", "naming",
                   text_or_null(dense ? NULL : site->naming->name), "experts",
                   (json_int_t)site->config.n_routed_experts, "top_k",
                   (json_int_t)(dense ? 0 : site->config.num_experts_per_tok),
                   "tensors", tensors, "scales", range_json(&site->range));
}

enum tool_status tool_inspect_json(const struct tool_inspection* inspection,
                                   FILE* out, struct tool_error* error) {
  struct tool_checkpoint* checkpoint = inspection->checkpoint;
  json_t* sites = json_array();
  json_t* problems = json_array();
  for (size_t i = 0; checkpoint != NULL && i < checkpoint->num_sites; i++) {
    json_array_append_new(sites,
                          site_json(&checkpoint->files, &checkpoint->sites[i]));
  }
  for (size_t i = 0; i < inspection->problems.count; i++) {
    json_array_append_new(problems,
                          text_or_null(inspection->problems.lines[i]));
  }
  json_t* document = json_pack(
      "{s:o, s:I, s:I, s:o, s:o, s:I}", "checkpoint",
      text_or_null(checkpoint == NULL ? inspection->args->checkpoint
                                      : checkpoint->files.path),
      "files",
      (json_int_t)(checkpoint == NULL ? 0 : checkpoint->files.num_shards),
      "tensors",
      (json_int_t)(checkpoint == NULL ? 0 : checkpoint->files.num_names),
      "sites", sites, "problems", problems, "problems_left_out",
      (json_int_t)inspection->problems.left_out);
  enum tool_status status = tool_ok;
  if (document == NULL ||
      json_dumpf(document, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0) {
    status = tool_fail(error, "cannot write JSON: out of memory");
  }
  json_decref(document);
  fputc('\n', out);
  return status;
}
