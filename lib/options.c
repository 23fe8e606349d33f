#include "lib/options.h"

#include <stdio.h>
#include <string.h>

#include "kernels/union.h"
#include "lib/choose.h"

const char* moep_recipe_name(enum moeplan_recipe recipe) {
  switch (recipe) {
    case moeplan_recipe_auto:
      return "auto";
    case moeplan_recipe_decode:
      return "decode";
    case moeplan_recipe_verify:
      return "verify";
    case moeplan_recipe_row_groups:
      return "row_groups";
    case moeplan_recipe_per_row:
      return "per_row";
    case moeplan_recipe_prefill:
      return "prefill";
    case moeplan_recipe_dense:
      return "dense";
  }
  return NULL;
}

/* Known options that no build honours yet. */
static enum moeplan_status check_supported(
    const struct moeplan_options* options, const struct moeplan_hooks* hooks) {
  const struct {
    const char* name;
    bool set;
  } refused[] = {
      {"profile", options->profile},
      {"y_mode add", options->y_mode == moeplan_y_add},
      {"measure", options->measure},
      {"wisdom_only", options->wisdom_only},
  };
  for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
    if (!refused[i].set) continue;
    return MOEP_REFUSE(hooks, unsupported_option,
                       "cannot plan with %s: this build does not have it",
                       refused[i].name);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_values(const struct moeplan_options* options,
                                        const struct moeplan_hooks* hooks) {
  if (moep_recipe_name(options->recipe) == NULL) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan recipe %d: must be 0 (auto) to %d",
                       (int)options->recipe, (int)moeplan_recipe_dense);
  }
  if (options->row_batch_max > MOEP_UNION_ROWS) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan row_batch_max %u: must be 1 to %d",
                       options->row_batch_max, MOEP_UNION_ROWS);
  }
  if (options->grouped_min_rows != 0 &&
      (options->grouped_min_rows < MOEP_GROUPED_MIN_ROWS ||
       options->grouped_min_rows > MOEP_MAX_ROWS)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan grouped_min_rows %u: must be %d to %d",
                       options->grouped_min_rows, MOEP_GROUPED_MIN_ROWS,
                       MOEP_MAX_ROWS);
  }
  if (options->tile != NULL && moep_tile_find(options->tile) == NULL) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan tile \"%.32s\": must be n8, n16, n32, n48, "
                       "n64, n80, n96, n128, n256 or base",
                       options->tile);
  }
  if (options->y_type != moeplan_dtype_bf16 &&
      options->y_type != moeplan_dtype_f32) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan y_type %d: must be bf16 or f32",
                       (int)options->y_type);
  }
  if ((unsigned)options->numerics > moeplan_numerics_tiered ||
      (unsigned)options->y_mode > moeplan_y_add) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot plan numerics %d, y_mode %d: must be 0 or 1",
                       (int)options->numerics, (int)options->y_mode);
  }
  return moeplan_status_success;
}

enum moeplan_status moep_options_read(const struct moeplan_options* options,
                                      const struct moeplan_hooks* hooks,
                                      struct moeplan_options* options_out) {
  struct moeplan_options copy = MOEPLAN_OPTIONS_INIT;
  if (options != NULL) {
    MOEP_CHECK_STRUCT(hooks, options);
    MOEP_TRY(check_values(options, hooks));
    MOEP_TRY(check_supported(options, hooks));
    copy = *options;
  }
  *options_out = copy;
  return moeplan_status_success;
}

bool moep_lever_at(const struct moeplan_options* options, uint32_t index,
                   struct moep_lever* lever_out) {
  const struct {
    const char* name;
    const char* variable;
    uint32_t value; /* 0: default */
    const char* text;
  } levers[] = {
      {"recipe", "MOEPLAN_RECIPE", options->recipe,
       moep_recipe_name(options->recipe)},
      {"no_row_batch", "MOEPLAN_NO_ROW_BATCH", options->no_row_batch, NULL},
      {"row_batch_max", "MOEPLAN_ROW_BATCH_MAX", options->row_batch_max, NULL},
      {"no_grouped", "MOEPLAN_GROUPED", options->no_grouped, NULL},
      {"grouped_min_rows", "MOEPLAN_GROUPED_MIN_ROWS",
       options->grouped_min_rows, NULL},
      {"tile", "MOEPLAN_TILE", options->tile != NULL, options->tile},
      {"host_dispatch", "MOEPLAN_HOST_DISPATCH", options->host_dispatch, NULL},
      {"numerics", "MOEPLAN_NUMERICS", options->numerics, "tiered"},
      {"no_cublas", "MOEPLAN_CUBLAS", options->no_cublas, NULL},
      {"no_pdl", "MOEPLAN_PDL", options->no_pdl, NULL},
      {"sm_limit", "MOEPLAN_SM_LIMIT", options->sm_limit, NULL},
      {"y_type", "y_type", options->y_type, "f32"},
  };
  uint32_t seen = 0;
  for (size_t i = 0; i < sizeof(levers) / sizeof(*levers); i++) {
    if (levers[i].value == 0 || seen++ != index) continue;
    if (levers[i].text != NULL) {
      snprintf(lever_out->text, sizeof(lever_out->text), "%s %s",
               levers[i].name, levers[i].text);
    } else {
      snprintf(lever_out->text, sizeof(lever_out->text), "%s %u",
               levers[i].name, levers[i].value);
    }
    lever_out->variable = levers[i].variable;
    return true;
  }
  return false;
}
