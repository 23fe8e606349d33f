/* Row groups: more rows than one union holds, without the prefill recipe.
 * Verify's node, group after group. */

#include "plans/steps.h"

const struct moep_recipe moep_recipe_row_groups = {
    moeplan_recipe_row_groups, "row_groups",     moeplan_site_routed,
    moep_split_groups,         moep_group_steps, MOEP_GROUP_STEPS};
