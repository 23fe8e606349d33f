/* Stage 5: the choices of a plan, as pure functions of sizes and levers. */

#ifndef MOEPLAN_LIB_CHOOSE_H_
#define MOEPLAN_LIB_CHOOSE_H_

#include "lib/dims.h"

/* A tile of the routed projections: tokens (the N of the tensor cores). */
struct moep_tile {
  const char* name;
  uint32_t tokens;
};

/* By name; NULL if there is none. */
const struct moep_tile* moep_tile_find(const char* name);

/* Whether the plain kernels are asked for. */
bool moep_tile_is_base(const struct moep_tile* tile);

/* The tile of recipes that work on one group of rows. */
const struct moep_tile* moep_tile_of_group(void);

/* "-": what recipes without routed projections have. */
const struct moep_tile* moep_tile_none(void);

/* The prefill rule where the device's kernels take tiles (base elsewhere): the
 * narrowest tile with at least mean + 2.5 sqrt(mean) tokens, mean = rows * topk /
 * experts; else the widest. */
const struct moep_tile* moep_tile_by_rule(const struct moep_dims* dims,
                                          uint32_t rows);

/* The tile of a recipe for `rows` rows: none, a group's, or in prefill the lever's
 * if it is set and else the rule's. */
const struct moep_tile* moep_tile_choose(const struct moep_dims* dims,
                                         uint32_t rows,
                                         const struct moeplan_options* options,
                                         enum moeplan_recipe recipe);

/* Widest union group: the lever's cap, at most 64 ids a group, and what the
 * device's kernels take. At least 1. */
uint32_t moep_union_cap(const struct moep_dims* dims,
                        const struct moeplan_options* options);

/* The recipe of `rows` rows: forced, else by precedence host dispatch, grouped
 * (on, above 8 rows, from grouped_min_rows), union groups, per row. Options are
 * checked already. */
enum moeplan_recipe moep_recipe_choose(const struct moep_dims* dims,
                                       uint32_t rows,
                                       const struct moeplan_options* options);

/* The variable of a lever that, set otherwise while all else stays, changes what
 * moep_recipe_choose chose (or how it runs: host dispatch). NULL: no lever does,
 * the site has one recipe. */
const char* moep_recipe_lever(const struct moep_dims* dims, uint32_t rows,
                              const struct moeplan_options* options);

#endif /* MOEPLAN_LIB_CHOOSE_H_ */
