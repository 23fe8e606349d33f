/* Stage 4: levers from MOEPLAN_* variables; the only getenv of the library. */

#include <stdlib.h>
#include <string.h>

#include "lib/options.h"
#include "lib/planner.h"

/* A whole decimal number up to 2^31 - 1. */
static bool parse_number(const char* text, uint32_t* value_out) {
  const size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 9 || text[digits] != '\0') return false;
  *value_out = (uint32_t)strtoul(text, NULL, 10);
  return true;
}

static bool parse_flag(const char* text, bool* value_out) {
  uint32_t number;
  if (!parse_number(text, &number) || number > 1) return false;
  *value_out = number == 1;
  return true;
}

static bool set_row_batch(struct moeplan_options* options, const char* text) {
  return parse_flag(text, &options->no_row_batch);
}

static bool set_row_batch_max(struct moeplan_options* options,
                              const char* text) {
  return parse_number(text, &options->row_batch_max) &&
         options->row_batch_max >= 1;
}

static bool set_grouped(struct moeplan_options* options, const char* text) {
  bool on;
  if (!parse_flag(text, &on)) return false;
  options->no_grouped = !on;
  return true;
}

static bool set_grouped_min_rows(struct moeplan_options* options,
                                 const char* text) {
  return parse_number(text, &options->grouped_min_rows) &&
         options->grouped_min_rows >= 1;
}

static bool set_tile(struct moeplan_options* options, const char* text) {
  options->tile = text;
  return true;
}

static bool set_recipe(struct moeplan_options* options, const char* text) {
  for (int i = 0; moep_recipe_name((enum moeplan_recipe)i) != NULL; i++) {
    if (strcmp(moep_recipe_name((enum moeplan_recipe)i), text) != 0) continue;
    options->recipe = (enum moeplan_recipe)i;
    return true;
  }
  return false;
}

static bool set_host_dispatch(struct moeplan_options* options,
                              const char* text) {
  return parse_flag(text, &options->host_dispatch);
}

static bool set_profile(struct moeplan_options* options, const char* text) {
  return parse_flag(text, &options->profile);
}

static bool set_numerics(struct moeplan_options* options, const char* text) {
  if (strcmp(text, "invariant") == 0) {
    options->numerics = moeplan_numerics_invariant;
    return true;
  }
  options->numerics = moeplan_numerics_tiered;
  return strcmp(text, "tiered") == 0;
}

static bool set_cublas(struct moeplan_options* options, const char* text) {
  bool on;
  if (!parse_flag(text, &on)) return false;
  options->no_cublas = !on;
  return true;
}

static bool set_pdl(struct moeplan_options* options, const char* text) {
  bool on;
  if (!parse_flag(text, &on)) return false;
  options->no_pdl = !on;
  return true;
}

static bool set_sm_limit(struct moeplan_options* options, const char* text) {
  return parse_number(text, &options->sm_limit) && options->sm_limit >= 1;
}

static const struct {
  const char* variable;
  bool (*set)(struct moeplan_options* options, const char* text);
  const char* rule;
} variables[] = {
    {"MOEPLAN_NO_ROW_BATCH", set_row_batch, "0 or 1"},
    {"MOEPLAN_ROW_BATCH_MAX", set_row_batch_max, "1 to 8"},
    {"MOEPLAN_GROUPED", set_grouped, "0 or 1"},
    {"MOEPLAN_GROUPED_MIN_ROWS", set_grouped_min_rows, "9 to 1048576"},
    {"MOEPLAN_TILE", set_tile, "a tile's name"},
    {"MOEPLAN_RECIPE", set_recipe, "a recipe's name"},
    {"MOEPLAN_HOST_DISPATCH", set_host_dispatch, "0 or 1"},
    {"MOEPLAN_PROFILE", set_profile, "0 or 1"},
    {"MOEPLAN_NUMERICS", set_numerics, "invariant or tiered"},
    {"MOEPLAN_CUBLAS", set_cublas, "0 or 1"},
    {"MOEPLAN_PDL", set_pdl, "0 or 1"},
    {"MOEPLAN_SM_LIMIT", set_sm_limit, "1 or more"},
};

enum moeplan_status moeplan_options_from_environment(
    moeplan_planner_t planner, struct moeplan_options* options) {
  if (planner == NULL || options == NULL) {
    return moeplan_status_invalid_argument;
  }
  MOEP_CHECK_STRUCT(&planner->hooks, options);
  struct moeplan_options read = *options;
  for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
    const char* text = getenv(variables[i].variable);
    if (text == NULL) continue;
    if (!variables[i].set(&read, text)) {
      return MOEP_REFUSE(&planner->hooks, invalid_argument,
                         "cannot read %s=\"%.64s\": must be %s",
                         variables[i].variable, text, variables[i].rule);
    }
  }
  struct moeplan_options checked;
  MOEP_TRY(moep_options_read(&read, &planner->hooks, &checked));
  *options = checked;
  return moeplan_status_success;
}
