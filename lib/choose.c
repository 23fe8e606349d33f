#include "lib/choose.h"

#include <math.h>
#include <string.h>

#include "kernels/union.h"
#include "lib/options.h"
#include "lib/row_groups.h"

/* Ascending, "base" (the plain mma.sync tile) last. */
static const struct moep_tile tiles[] = {
    {"n8", 8},   {"n16", 16}, {"n32", 32},   {"n48", 48},   {"n64", 64},
    {"n80", 80}, {"n96", 96}, {"n128", 128}, {"n256", 256}, {"base", 64},
};

enum { TILE_COUNT = sizeof(tiles) / sizeof(*tiles), WIDEST = TILE_COUNT - 2 };

const struct moep_tile* moep_tile_find(const char* name) {
  for (int i = 0; i < TILE_COUNT; i++) {
    if (strcmp(tiles[i].name, name) == 0) return &tiles[i];
  }
  return NULL;
}

bool moep_tile_is_base(const struct moep_tile* tile) {
  return tile == &tiles[TILE_COUNT - 1];
}

const struct moep_tile* moep_tile_of_group(void) { return &tiles[0]; }

const struct moep_tile* moep_tile_none(void) {
  static const struct moep_tile none = {"-", 0};
  return &none;
}

const struct moep_tile* moep_tile_by_rule(const struct moep_dims* dims,
                                          uint32_t rows) {
  const double mean = (double)rows * dims->topk / dims->experts;
  const double wanted = mean + 2.5 * sqrt(mean);
  for (int i = 0; i < WIDEST; i++) {
    if (tiles[i].tokens >= wanted) return &tiles[i];
  }
  /* Measured: the wider of the two is the faster one from a mean of about 128. */
  return &tiles[mean > tiles[WIDEST - 1].tokens ? WIDEST : WIDEST - 1];
}

const struct moep_tile* moep_tile_choose(const struct moep_dims* dims,
                                         uint32_t rows,
                                         const struct moeplan_options* options,
                                         enum moeplan_recipe recipe) {
  if (recipe == moeplan_recipe_dense) return moep_tile_none();
  if (recipe != moeplan_recipe_prefill) return moep_tile_of_group();
  if (options->tile != NULL) return moep_tile_find(options->tile);
  return dims->tiles ? moep_tile_by_rule(dims, rows) : moep_tile_find("base");
}

uint32_t moep_union_cap(const struct moep_dims* dims,
                        const struct moeplan_options* options) {
  const uint32_t by_ids = MOEP_UNION_ENTRIES / dims->topk;
  const uint32_t cap =
      options->row_batch_max == 0 ? MOEP_UNION_ROWS : options->row_batch_max;
  const uint32_t narrow = cap < by_ids ? cap : by_ids;
  const uint32_t by_device = dims->group_rows == 0 ? 1 : dims->group_rows;
  return narrow < by_device ? narrow : by_device;
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

static void flip_row_batch(struct moeplan_options* options) {
  options->no_row_batch = !options->no_row_batch;
}

static void reset_row_batch_max(struct moeplan_options* options) {
  options->row_batch_max = 0;
}

static void flip_grouped(struct moeplan_options* options) {
  options->no_grouped = !options->no_grouped;
}

static void reset_grouped_min_rows(struct moeplan_options* options) {
  options->grouped_min_rows = 0;
}

/* Tried rather than derived: what a lever does depends on the others and on the
 * site, and moep_recipe_choose knows. */
const char* moep_recipe_lever(const struct moep_dims* dims, uint32_t rows,
                              const struct moeplan_options* options) {
  static const struct {
    const char* variable;
    void (*change)(struct moeplan_options* options);
  } levers[] = {
      {"MOEPLAN_NO_ROW_BATCH", flip_row_batch},
      {"MOEPLAN_ROW_BATCH_MAX", reset_row_batch_max},
      {"MOEPLAN_GROUPED", flip_grouped},
      {"MOEPLAN_GROUPED_MIN_ROWS", reset_grouped_min_rows},
  };
  if (dims->kind == moeplan_site_dense) return NULL;
  if (options->recipe != moeplan_recipe_auto) return "MOEPLAN_RECIPE";
  if (options->host_dispatch) return "MOEPLAN_HOST_DISPATCH";
  const enum moeplan_recipe chosen = moep_recipe_choose(dims, rows, options);
  for (size_t i = 0; i < sizeof(levers) / sizeof(*levers); i++) {
    struct moeplan_options changed = *options;
    levers[i].change(&changed);
    if (moep_recipe_choose(dims, rows, &changed) != chosen) {
      return levers[i].variable;
    }
  }
  return "MOEPLAN_RECIPE"; /* forces any */
}
