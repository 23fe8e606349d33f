/* Stage 5: a plan: everything decided, nothing bound. */

#ifndef MOEPLAN_LIB_PLAN_H_
#define MOEPLAN_LIB_PLAN_H_

#include "lib/choose.h"
#include "lib/kernel_table.h"
#include "lib/layout.h"
#include "lib/matmul.h"
#include "lib/planner.h"
#include "lib/recipe.h"

enum {
  MOEP_MAX_NODES = 1 << 16,
  MOEP_PDL_MIN_SM = 90, /* griddepcontrol */
};

/* One launch. */
struct moep_node {
  const struct moep_step* step;
  const struct moep_kernel* kernel;
  uint32_t row_begin, row_count;
  struct moep_launch launch;
  enum moep_matmul_id matmul;
  uint64_t bytes; /* most that the node reads and writes */
  uint64_t flop;
};

struct moeplan_plan {
  struct moeplan_planner* planner;
  uint32_t rows;
  const struct moep_recipe* recipe;
  const struct moep_tile* tile;
  struct moeplan_options options; /* as checked; tile points to static text */
  uint32_t parts;                 /* groups or rows of the split */
  struct moep_layout layout;
  struct moep_matmul matmuls[MOEP_MATMUL_COUNT]; /* rows 0: not in this plan */
  uint32_t node_count;
  struct moep_node nodes[];
};

/* Seconds below which no device of this kind can go; 0: not known. */
double moep_node_floor(const struct moep_device* device,
                       const struct moep_node* node);

#endif /* MOEPLAN_LIB_PLAN_H_ */
