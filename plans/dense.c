/* Dense: gate+up+SwiGLU, then down, for any number of rows. */

#include "plans/steps.h"

static const struct moep_step steps[] = {
    {moep_op_ffn_up, moep_need_nothing, MOEP_X, MOEP_BUF(ffn_h)},
    {moep_op_ffn_down, moep_need_nothing, MOEP_BUF(ffn_h), MOEP_Y},
};

const struct moep_recipe moep_recipe_dense = {
    moeplan_recipe_dense, "dense", moeplan_site_dense,
    moep_split_whole,     steps,   sizeof(steps) / sizeof(*steps)};
