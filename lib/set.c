/* Stage 7: all plans of a site over one binding. */

#include "lib/plan.h"

struct member {
  uint32_t rows;
  moeplan_graph_t graph;
};

struct moeplan_set {
  const struct moeplan_planner* planner;
  bool has_live_rows;
  size_t count;
  struct member members[]; /* ascending rows */
};

static enum moeplan_status check_counts(const struct moeplan_planner* planner,
                                        const uint32_t* row_counts, size_t n) {
  if (n == 0 || n > planner->dims.max_rows) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot create a set of %zu row counts: must be 1 to "
                       "max_rows %u",
                       n, planner->dims.max_rows);
  }
  for (size_t i = 1; i < n; i++) {
    if (row_counts[i] > row_counts[i - 1]) continue;
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot create a set with %u rows after %u: row counts "
                       "must ascend",
                       row_counts[i], row_counts[i - 1]);
  }
  return moeplan_status_success;
}

static enum moeplan_status add_member(moeplan_planner_t planner,
                                      const struct moeplan_binding* binding,
                                      uint32_t rows,
                                      const struct moeplan_options* options,
                                      struct moeplan_set* set) {
  moeplan_plan_t plan;
  MOEP_TRY(moeplan_plan_create(planner, rows, options, &plan));
  moeplan_graph_t graph = NULL;
  const enum moeplan_status status =
      moeplan_graph_create(plan, binding, &graph);
  moeplan_plan_destroy(plan); /* the graph has its own copy */
  if (status != moeplan_status_success) return status;
  set->members[set->count++] = (struct member){rows, graph};
  return moeplan_status_success;
}

enum moeplan_status moeplan_set_create(moeplan_planner_t planner,
                                       const struct moeplan_binding* binding,
                                       const uint32_t* row_counts, size_t n,
                                       const struct moeplan_options* options,
                                       moeplan_set_t* set_out) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (binding == NULL || row_counts == NULL || set_out == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot create a set: binding, row_counts and set_out "
                       "must not be NULL");
  }
  MOEP_TRY(check_counts(planner, row_counts, n));
  struct moeplan_set* set = moep_allocate(
      &planner->hooks, sizeof(*set) + n * sizeof(set->members[0]));
  if (set == NULL) return moeplan_status_out_of_memory;
  *set = (struct moeplan_set){.planner = planner};
  for (size_t i = 0; i < n; i++) {
    const enum moeplan_status status =
        add_member(planner, binding, row_counts[i], options, set);
    if (status == moeplan_status_success) continue;
    moeplan_set_destroy(set);
    return status;
  }
  set->has_live_rows = binding->live_rows != NULL;
  *set_out = set;
  return moeplan_status_success;
}

enum moeplan_status moeplan_set_replay(moeplan_set_t set, uint32_t rows,
                                       cudaStream_t stream) {
  if (set == NULL) return moeplan_status_invalid_argument;
  for (size_t i = 0; i < set->count; i++) {
    const struct member* member = &set->members[i];
    if (member->rows < rows) continue;
    if (rows == 0 || (member->rows != rows && !set->has_live_rows)) break;
    return moeplan_graph_replay(member->graph, stream);
  }
  return MOEP_REFUSE(&set->planner->hooks, invalid_argument,
                     "cannot replay %u rows: no graph of the set has that many"
                     "%s",
                     rows,
                     set->has_live_rows
                         ? " or more"
                         : ", and without live_rows only exact counts do");
}

void moeplan_set_destroy(moeplan_set_t set) {
  if (set == NULL) return;
  for (size_t i = 0; i < set->count; i++) {
    moeplan_graph_destroy(set->members[i].graph);
  }
  moep_release(&set->planner->hooks, set);
}
