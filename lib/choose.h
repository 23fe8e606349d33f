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

/* The tile of recipes that work on one group of rows. */
const struct moep_tile* moep_tile_of_group(void);

/* The prefill rule: the narrowest tile with at least mean + 2.5 sqrt(mean)
 * tokens, mean = rows * topk / experts; else the widest. */
const struct moep_tile* moep_tile_by_rule(const struct moep_dims* dims,
                                          uint32_t rows);

/* Widest union group: the lever's cap, and at most 64 ids a group. */
uint32_t moep_union_cap(const struct moep_dims* dims,
                        const struct moeplan_options* options);

/* The recipe of `rows` rows: forced, else by precedence host dispatch, grouped
 * (on, above 8 rows, from grouped_min_rows), union groups, per row. Options are
 * checked already. */
enum moeplan_recipe moep_recipe_choose(const struct moep_dims* dims,
                                       uint32_t rows,
                                       const struct moeplan_options* options);

#endif /* MOEPLAN_LIB_CHOOSE_H_ */
