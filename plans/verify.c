/* Verify: 2..8 rows over the union of their experts. The same node as decode: the
 * table of the union is built on the device, and each expert's bytes are read
 * once for all rows that want it. */

#include "plans/steps.h"

const struct moep_recipe moep_recipe_verify = {
    moeplan_recipe_verify, "verify",         moeplan_site_routed,
    moep_split_whole,      moep_group_steps, MOEP_GROUP_STEPS};
