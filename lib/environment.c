/* Stage 4: levers from MOEPLAN_* variables; the only getenv of the library. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/union.h"
#include "lib/options.h"
#include "lib/planner.h"

enum { MAX_RULE = 32 };

/* What a variable sets, and to what. */
struct variable {
  const char* name;
  bool (*set)(const struct variable* variable, const char* text,
              struct moeplan_options* options);
  const char* rule;  /* NULL: as the bounds say */
  size_t field;      /* offset in the options: of a number or a flag */
  uint32_t min, max; /* of a number or a flag */
};

/* A whole decimal number from min to max. */
static bool parse_number(const struct variable* variable, const char* text,
                         uint32_t* value_out) {
  const size_t digits = strspn(text, "0123456789");
  if (digits == 0 || text[digits] != '\0') return false;
  const unsigned long long number = strtoull(text, NULL, 10);
  if (number < variable->min || number > variable->max) return false;
  *value_out = (uint32_t)number;
  return true;
}

static bool set_number(const struct variable* variable, const char* text,
                       struct moeplan_options* options) {
  return parse_number(variable, text,
                      (uint32_t*)((char*)options + variable->field));
}

static bool set_flag(const struct variable* variable, const char* text,
                     struct moeplan_options* options) {
  uint32_t number;
  if (!parse_number(variable, text, &number)) return false;
  *(bool*)((char*)options + variable->field) = number == 1;
  return true;
}

/* The variable says on, the field says off. */
static bool set_no(const struct variable* variable, const char* text,
                   struct moeplan_options* options) {
  uint32_t number;
  if (!parse_number(variable, text, &number)) return false;
  *(bool*)((char*)options + variable->field) = number == 0;
  return true;
}

static bool set_tile(const struct variable* variable, const char* text,
                     struct moeplan_options* options) {
  (void)variable;
  options->tile = text;
  return true;
}

static bool set_recipe(const struct variable* variable, const char* text,
                       struct moeplan_options* options) {
  (void)variable;
  for (int i = 0; moep_recipe_name((enum moeplan_recipe)i) != NULL; i++) {
    if (strcmp(moep_recipe_name((enum moeplan_recipe)i), text) != 0) continue;
    options->recipe = (enum moeplan_recipe)i;
    return true;
  }
  return false;
}

static bool set_numerics(const struct variable* variable, const char* text,
                         struct moeplan_options* options) {
  (void)variable;
  if (strcmp(text, "invariant") == 0) {
    options->numerics = moeplan_numerics_invariant;
    return true;
  }
  options->numerics = moeplan_numerics_tiered;
  return strcmp(text, "tiered") == 0;
}

/* clang-format off */
#define FLAG(set, field) set, NULL, offsetof(struct moeplan_options, field), 0, 1
#define NUMBER(field, min, max) \
  set_number, NULL, offsetof(struct moeplan_options, field), min, max
#define TEXT(set, rule) set, rule, 0, 0, 0
static const struct variable variables[] = {
    {"MOEPLAN_NO_ROW_BATCH", FLAG(set_flag, no_row_batch)},
    {"MOEPLAN_ROW_BATCH_MAX", NUMBER(row_batch_max, 1, MOEP_UNION_ROWS)},
    {"MOEPLAN_GROUPED", FLAG(set_no, no_grouped)},
    {"MOEPLAN_GROUPED_MIN_ROWS",
     NUMBER(grouped_min_rows, MOEP_GROUPED_MIN_ROWS, MOEP_MAX_ROWS)},
    {"MOEPLAN_TILE", TEXT(set_tile, "a tile's name")},
    {"MOEPLAN_RECIPE", TEXT(set_recipe, "a recipe's name")},
    {"MOEPLAN_HOST_DISPATCH", FLAG(set_flag, host_dispatch)},
    {"MOEPLAN_PROFILE", FLAG(set_flag, profile)},
    {"MOEPLAN_NUMERICS", TEXT(set_numerics, "invariant or tiered")},
    {"MOEPLAN_CUBLAS", FLAG(set_no, no_cublas)},
    {"MOEPLAN_PDL", FLAG(set_no, no_pdl)},
    {"MOEPLAN_SM_LIMIT", NUMBER(sm_limit, 1, UINT32_MAX)},
};
/* clang-format on */

static enum moeplan_status refuse(const struct moeplan_hooks* hooks,
                                  const struct variable* variable,
                                  const char* text) {
  char rule[MAX_RULE];
  if (variable->rule != NULL) {
    snprintf(rule, sizeof(rule), "%s", variable->rule);
  } else if (variable->max == UINT32_MAX) {
    snprintf(rule, sizeof(rule), "%u or more", variable->min);
  } else {
    snprintf(rule, sizeof(rule), "%u %s %u", variable->min,
             variable->max == 1 ? "or" : "to", variable->max);
  }
  return MOEP_REFUSE(hooks, invalid_argument,
                     "cannot read %s=\"%.64s\": must be %s", variable->name,
                     text, rule);
}

enum moeplan_status moeplan_options_from_environment(
    moeplan_planner_t planner, struct moeplan_options* options) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (options == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot read the environment: options must not be NULL");
  }
  MOEP_CHECK_STRUCT(&planner->hooks, options);
  struct moeplan_options read = *options;
  for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
    const struct variable* variable = &variables[i];
    const char* text = getenv(variable->name);
    if (text != NULL && !variable->set(variable, text, &read)) {
      return refuse(&planner->hooks, variable, text);
    }
  }
  struct moeplan_options checked;
  MOEP_TRY(moep_options_read(&read, &planner->hooks, &checked));
  *options = checked;
  return moeplan_status_success;
}
