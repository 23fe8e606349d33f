/* Decode: one row, a few experts. Bandwidth-bound: every weight byte of the
 * picked experts is read once. One node, from x to y: its parts follow one another
 * inside a grid whose blocks run together, so that copies of weights never stop.
 * Also the node of every other union recipe. */

#include "plans/steps.h"

const struct moep_step moep_group_steps[MOEP_GROUP_STEPS] = {
    {moep_op_group, moep_need_nothing, MOEP_X,
     MOEP_BUF(logits) | MOEP_BUF(ffn_h) | MOEP_BUF(topk_ids) |
         MOEP_BUF(topk_weights) | MOEP_BUF(expert_h) | MOEP_Y},
};

const struct moep_recipe moep_recipe_decode = {
    moeplan_recipe_decode, "decode",         moeplan_site_routed,
    moep_split_whole,      moep_group_steps, MOEP_GROUP_STEPS};
