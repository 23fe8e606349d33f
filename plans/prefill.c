/* Prefill: many rows. Route every row, sort the slots by expert on the device,
 * run each projection for all experts in one launch, and combine each row from
 * its slots. The counts never reach the host. */

#include "plans/steps.h"

static const struct moep_step steps[] = {
    {moep_op_logits, moep_need_nothing, MOEP_X, MOEP_BUF(logits)},
    {moep_op_ffn_up, moep_need_shared, MOEP_X, MOEP_BUF(ffn_h)},
    {moep_op_route, moep_need_nothing, MOEP_BUF(logits),
     MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights)},
    {moep_op_sort_count, moep_need_nothing, MOEP_BUF(topk_ids),
     MOEP_BUF(sort_counts)},
    {moep_op_sort_scan, moep_need_nothing, MOEP_BUF(sort_counts),
     MOEP_BUF(sort_counts) | MOEP_BUF(expert_offsets)},
    {moep_op_sort_scatter, moep_need_nothing,
     MOEP_BUF(topk_ids) | MOEP_BUF(sort_counts),
     MOEP_BUF(sort_counts) | MOEP_BUF(sorted_slots) | MOEP_BUF(token_to_perm)},
    {moep_op_permute_x, moep_need_nothing,
     MOEP_X | MOEP_BUF(topk_ids) | MOEP_BUF(expert_offsets) |
         MOEP_BUF(token_to_perm),
     MOEP_BUF(xp) | MOEP_BUF(slot_out)},
    {moep_op_grouped_up, moep_need_nothing,
     MOEP_BUF(xp) | MOEP_BUF(slot_out) | MOEP_BUF(expert_offsets) |
         MOEP_BUF(sorted_slots),
     MOEP_BUF(expert_h)},
    {moep_op_grouped_down, moep_need_nothing,
     MOEP_BUF(expert_h) | MOEP_BUF(expert_offsets) | MOEP_BUF(sorted_slots),
     MOEP_BUF(slot_out)},
    {moep_op_ffn_down, moep_need_shared, MOEP_BUF(ffn_h), MOEP_BUF(ffn_out)},
    {moep_op_combine, moep_need_nothing,
     MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) | MOEP_BUF(token_to_perm) |
         MOEP_BUF(slot_out) | MOEP_BUF(ffn_out),
     MOEP_Y},
};

const struct moep_recipe moep_recipe_prefill = {
    moeplan_recipe_prefill, "prefill", moeplan_site_routed,
    moep_split_whole,       steps,     sizeof(steps) / sizeof(*steps)};
