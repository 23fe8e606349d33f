/* Per row: decode's node, row by row. For debugging, and where a union group
 * would be one row wide. */

#include "plans/steps.h"

const struct moep_recipe moep_recipe_per_row = {
    moeplan_recipe_per_row, "per_row",        moeplan_site_routed,
    moep_split_rows,        moep_group_steps, MOEP_GROUP_STEPS};
