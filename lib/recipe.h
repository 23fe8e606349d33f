/* Stage 5: what a recipe is. plans/ holds the tables, the planner reads them. */

#ifndef MOEPLAN_LIB_RECIPE_H_
#define MOEPLAN_LIB_RECIPE_H_

#include "kernels/kernels.h"
#include "lib/layout.h"

/* What a step reads and writes: workspace buffers and the binding's x and y, as
 * a set of bits. Tests derive from it that nothing is read before it is
 * written; printing shows it. */
enum moep_place {
  moep_place_x = MOEP_BUFFER_COUNT,
  moep_place_y,
};

#define MOEP_BUF(name) (1u << moep_buffer_##name)
#define MOEP_X (1u << moep_place_x)
#define MOEP_Y (1u << moep_place_y)

/* Which sites have the step. */
enum moep_need {
  moep_need_nothing = 0,
  moep_need_shared = 1, /* sites with a shared expert on this rank */
};

struct moep_step {
  enum moep_op op;
  enum moep_need need;
  uint32_t reads, writes; /* sets of places */
};

/* How the plan's rows are divided; the steps run once per part, in order. */
enum moep_split {
  moep_split_whole,
  moep_split_groups, /* even groups of at most the union's cap */
  moep_split_rows,
};

struct moep_recipe {
  enum moeplan_recipe id;
  const char* name;
  enum moeplan_site_kind kind;
  enum moep_split split;
  const struct moep_step* steps;
  size_t step_count;
};

/* Defined in plans/recipes.c. */
extern const struct moep_recipe* const moep_recipes[];
extern const size_t moep_recipe_count;

/* NULL when there is none. */
const struct moep_recipe* moep_recipe_find(enum moeplan_recipe id);

/* The recipe's form with cuBLASLt's projections, NULL when it has none. */
const struct moep_recipe* moep_recipe_find_tiered(enum moeplan_recipe id);

#endif /* MOEPLAN_LIB_RECIPE_H_ */
