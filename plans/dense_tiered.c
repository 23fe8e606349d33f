/* Dense in TIERED, more than 8 rows: three matrix multiplications by cuBLASLt,
 * SwiGLU between them. */

#include "plans/steps.h"

static const struct moep_step steps[] = {
    {moep_op_matmul_gate, moep_need_nothing, MOEP_X,
     MOEP_BUF(ffn_h) | MOEP_BUF(matmul_work)},
    {moep_op_matmul_up, moep_need_nothing, MOEP_X,
     MOEP_BUF(ffn_up) | MOEP_BUF(matmul_work)},
    {moep_op_swiglu, moep_need_nothing, MOEP_BUF(ffn_h) | MOEP_BUF(ffn_up),
     MOEP_BUF(ffn_h)},
    {moep_op_matmul_down, moep_need_nothing, MOEP_BUF(ffn_h),
     MOEP_Y | MOEP_BUF(matmul_work)},
};

const struct moep_recipe moep_recipe_dense_tiered = {
    moeplan_recipe_dense, "dense", moeplan_site_dense,
    moep_split_whole,     steps,   sizeof(steps) / sizeof(*steps)};
