/* Decode: one row, a few experts. Bandwidth-bound: every weight byte of the
 * picked experts is read once. The first node also runs the shared expert's
 * first half, which hides the routing; the top-k is done again by every block
 * of the second; the last one combines in place, so that no slot output touches
 * memory. Also the nodes of per_row. */

#include "plans/steps.h"

const struct moep_step moep_decode_steps[MOEP_GROUP_STEPS] = {
    {moep_op_front, moep_need_nothing, MOEP_X,
     MOEP_BUF(logits) | MOEP_BUF(ffn_h)},
    {moep_op_route_up, moep_need_nothing, MOEP_X | MOEP_BUF(logits),
     MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) | MOEP_BUF(expert_h)},
    {moep_op_down_combine, moep_need_nothing,
     MOEP_BUF(logits) | MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) |
         MOEP_BUF(expert_h) | MOEP_BUF(ffn_h),
     MOEP_Y},
};

const struct moep_recipe moep_recipe_decode = {
    moeplan_recipe_decode, "decode",          moeplan_site_routed,
    moep_split_whole,      moep_decode_steps, MOEP_GROUP_STEPS};
