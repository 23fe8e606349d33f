/* The table of recipes. */

#include "plans/steps.h"

const struct moep_recipe* const moep_recipes[] = {
    &moep_recipe_decode,  &moep_recipe_verify,  &moep_recipe_row_groups,
    &moep_recipe_per_row, &moep_recipe_prefill, &moep_recipe_dense,
};

const size_t moep_recipe_count = sizeof(moep_recipes) / sizeof(moep_recipes[0]);

const struct moep_recipe* moep_recipe_find(enum moeplan_recipe id) {
  for (size_t i = 0; i < moep_recipe_count; i++) {
    if (moep_recipes[i]->id == id) return moep_recipes[i];
  }
  return NULL;
}

const struct moep_recipe* moep_recipe_find_tiered(enum moeplan_recipe id) {
  static const struct moep_recipe* const tiered[] = {
      &moep_recipe_prefill_tiered, &moep_recipe_dense_tiered};
  for (size_t i = 0; i < sizeof(tiered) / sizeof(tiered[0]); i++) {
    if (tiered[i]->id == id) return tiered[i];
  }
  return NULL;
}
