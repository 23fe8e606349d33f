/* Prefill in TIERED: as prefill, with the router's and the shared expert's
 * projections by cuBLASLt. */

#include "plans/steps.h"

static const struct moep_step steps[] = {
    {moep_op_matmul_logits, moep_need_nothing, MOEP_X,
     MOEP_BUF(logits) | MOEP_BUF(matmul_work)},
    {moep_op_matmul_gate, moep_need_shared, MOEP_X,
     MOEP_BUF(ffn_h) | MOEP_BUF(matmul_work)},
    {moep_op_matmul_up, moep_need_shared, MOEP_X,
     MOEP_BUF(ffn_up) | MOEP_BUF(matmul_work)},
    {moep_op_swiglu, moep_need_shared, MOEP_BUF(ffn_h) | MOEP_BUF(ffn_up),
     MOEP_BUF(ffn_h)},
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
    {moep_op_matmul_down, moep_need_shared, MOEP_BUF(ffn_h),
     MOEP_BUF(ffn_out) | MOEP_BUF(matmul_work)},
    {moep_op_combine, moep_need_nothing,
     MOEP_BUF(topk_ids) | MOEP_BUF(topk_weights) | MOEP_BUF(token_to_perm) |
         MOEP_BUF(slot_out) | MOEP_BUF(ffn_out),
     MOEP_Y},
};

const struct moep_recipe moep_recipe_prefill_tiered = {
    moeplan_recipe_prefill, "prefill", moeplan_site_routed,
    moep_split_whole,       steps,     sizeof(steps) / sizeof(*steps)};
