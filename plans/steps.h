/* The recipes, and the steps that two of them share. */

#ifndef MOEPLAN_PLANS_STEPS_H_
#define MOEPLAN_PLANS_STEPS_H_

#include "lib/recipe.h"

enum { MOEP_GROUP_STEPS = 1 };

extern const struct moep_step moep_group_steps[MOEP_GROUP_STEPS];

extern const struct moep_recipe moep_recipe_decode;
extern const struct moep_recipe moep_recipe_verify;
extern const struct moep_recipe moep_recipe_row_groups;
extern const struct moep_recipe moep_recipe_per_row;
extern const struct moep_recipe moep_recipe_prefill;
extern const struct moep_recipe moep_recipe_dense;
extern const struct moep_recipe moep_recipe_prefill_tiered;
extern const struct moep_recipe moep_recipe_dense_tiered;

#endif /* MOEPLAN_PLANS_STEPS_H_ */
