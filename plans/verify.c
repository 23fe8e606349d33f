/* Verify: 2..8 rows over the union of their experts. The same nodes as decode;
 * the table of the union is built on the device, and each expert's bytes are
 * read once for all rows that want it. Also the nodes of row_groups. */

#include "plans/steps.h"

const struct moep_step moep_verify_steps[MOEP_GROUP_STEPS] = {
    {moep_op_front, moep_need_nothing, MOEP_X,
     MOEP_BUF(logits) | MOEP_BUF(ffn_h)},
    {moep_op_union_up, moep_need_nothing, MOEP_X | MOEP_BUF(logits),
     MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) | MOEP_BUF(expert_h) |
         MOEP_BUF(union_eid) | MOEP_BUF(union_slot)},
    {moep_op_union_down, moep_need_nothing,
     MOEP_BUF(logits) | MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) |
         MOEP_BUF(expert_h) | MOEP_BUF(ffn_h) | MOEP_BUF(union_eid) |
         MOEP_BUF(union_slot),
     MOEP_Y},
};

const struct moep_recipe moep_recipe_verify = {
    moeplan_recipe_verify, "verify",          moeplan_site_routed,
    moep_split_whole,      moep_verify_steps, MOEP_GROUP_STEPS};
