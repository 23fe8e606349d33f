#include "lib/choose.h"

#include <math.h>
#include <string.h>

#include "kernels/union.h"
#include "lib/options.h"
#include "lib/row_groups.h"

/* Ascending, "base" (the plain mma.sync tile) last. */
static const struct moep_tile tiles[] = {
    {"n8", 8},   {"n16", 16},   {"n32", 32},   {"n64", 64},
    {"n96", 96}, {"n128", 128}, {"n192", 192}, {"base", 16},
};

enum { TILE_COUNT = sizeof(tiles) / sizeof(*tiles), WIDEST = TILE_COUNT - 2 };

const struct moep_tile* moep_tile_find(const char* name) {
  for (int i = 0; i < TILE_COUNT; i++) {
    if (strcmp(tiles[i].name, name) == 0) return &tiles[i];
  }
  return NULL;
}

const struct moep_tile* moep_tile_of_group(void) { return &tiles[0]; }

const struct moep_tile* moep_tile_by_rule(const struct moep_dims* dims,
                                          uint32_t rows) {
  const double mean = (double)rows * dims->topk / dims->experts;
  const double wanted = mean + 2.5 * sqrt(mean);
  for (int i = 0; i < WIDEST; i++) {
    if (tiles[i].tokens >= wanted) return &tiles[i];
  }
  return &tiles[WIDEST];
}

uint32_t moep_union_cap(const struct moep_dims* dims,
                        const struct moeplan_options* options) {
  const uint32_t by_ids = MOEP_UNION_ENTRIES / dims->topk;
  const uint32_t cap =
      options->row_batch_max == 0 ? MOEP_UNION_ROWS : options->row_batch_max;
  return cap < by_ids ? cap : by_ids;
}

/* Rows over union groups; a group of one row sends the whole plan per row. */
static enum moeplan_recipe choose_union(uint32_t rows, uint32_t cap) {
  if (rows == 1) return moeplan_recipe_decode;
  const uint32_t groups = moep_group_count(rows, cap);
  if (moep_group_at(rows, cap, groups - 1).count < 2) {
    return moeplan_recipe_per_row;
  }
  return groups == 1 ? moeplan_recipe_verify : moeplan_recipe_row_groups;
}

enum moeplan_recipe moep_recipe_choose(const struct moep_dims* dims,
                                       uint32_t rows,
                                       const struct moeplan_options* options) {
  if (options->recipe != moeplan_recipe_auto) return options->recipe;
  if (dims->kind == moeplan_site_dense) return moeplan_recipe_dense;
  if (options->host_dispatch) return moeplan_recipe_prefill;
  const uint32_t grouped_from = options->grouped_min_rows == 0
                                    ? MOEP_GROUPED_MIN_ROWS
                                    : options->grouped_min_rows;
  if (!options->no_grouped && rows >= grouped_from) {
    return moeplan_recipe_prefill;
  }
  if (options->no_row_batch && rows > 1) return moeplan_recipe_per_row;
  return choose_union(rows, moep_union_cap(dims, options));
}
