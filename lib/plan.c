/* Stage 5: recipe + choices + layout -> node list. Pure; no pointer of the
 * caller's is seen here. */

#include "lib/plan.h"

#include "kernels/union.h"
#include "lib/cost.h"
#include "lib/options.h"
#include "lib/row_groups.h"

static bool step_needed(const struct moep_dims* dims,
                        const struct moep_step* step) {
  return step->need == moep_need_nothing || dims->width != 0;
}

/* Rows that fit one part of a recipe, or 0 for any number. */
static uint32_t part_cap(const struct moep_recipe* recipe,
                         const struct moep_dims* dims,
                         const struct moeplan_options* options) {
  switch (recipe->split) {
    case moep_split_whole:
      return 0;
    case moep_split_groups:
      return moep_union_cap(dims, options);
    case moep_split_rows:
      return 1;
  }
  return 0;
}

/* Whether the recipe is made of union groups, of one row or more. */
static bool is_of_groups(const struct moep_recipe* recipe) {
  return recipe->kind == moeplan_site_routed &&
         recipe->id != moeplan_recipe_prefill;
}

/* A recipe has to fit the site, the rows and the device. */
static enum moeplan_status check_recipe(const struct moeplan_planner* planner,
                                        const struct moep_recipe* recipe,
                                        uint32_t rows,
                                        const struct moeplan_options* options) {
  const struct moep_dims* dims = &planner->dims;
  if (recipe->kind != dims->kind) {
    return MOEP_REFUSE(
        &planner->hooks, unsupported_option,
        "cannot plan recipe %s for a %s site: it is for %s sites", recipe->name,
        dims->kind == moeplan_site_dense ? "dense" : "routed",
        recipe->kind == moeplan_site_dense ? "dense" : "routed");
  }
  if (is_of_groups(recipe) && dims->group_rows == 0) {
    return MOEP_REFUSE(&planner->hooks, unsupported_device,
                       "cannot plan recipe %s on %s: a row of hidden_size %u, "
                       "shared_local_intermediate %u does not fit its %u bytes "
                       "of shared memory per block",
                       recipe->name, planner->device.name, dims->hidden,
                       dims->width, planner->device.shared_bytes);
  }
  if (recipe->id == moeplan_recipe_decode && rows != 1) {
    return MOEP_REFUSE(&planner->hooks, unsupported_option,
                       "cannot plan recipe decode for %u rows: must be 1",
                       rows);
  }
  if (recipe->id == moeplan_recipe_verify &&
      rows > moep_union_cap(dims, options)) {
    return MOEP_REFUSE(&planner->hooks, unsupported_option,
                       "cannot plan recipe verify for %u rows: at most %u",
                       rows, moep_union_cap(dims, options));
  }
  if (recipe->id == moeplan_recipe_prefill && options->tile != NULL &&
      !dims->tiles && !moep_tile_is_base(moep_tile_find(options->tile))) {
    return MOEP_REFUSE(&planner->hooks, unsupported_option,
                       "cannot plan tile %s on %s: for these widths its "
                       "kernels have the tile base alone",
                       options->tile, planner->device.name);
  }
  if (options->host_dispatch && recipe->id != moeplan_recipe_prefill) {
    return MOEP_REFUSE(&planner->hooks, unsupported_option,
                       "cannot plan host_dispatch with recipe %s: it runs the "
                       "prefill recipe's steps",
                       recipe->name);
  }
  return moeplan_status_success;
}

/* The shapes of the recipe's multiplications, and cuBLASLt's choice for each. */
static enum moeplan_status choose_matmuls(struct moeplan_plan* plan) {
  const struct moep_dims* dims = &plan->planner->dims;
  const bool y_f32 = dims->kind == moeplan_site_routed ||
                     plan->options.y_type == moeplan_dtype_f32;
  const struct moep_matmul shapes[MOEP_MATMUL_COUNT] = {
      [moep_matmul_logits] = {.n = dims->experts,
                              .k = dims->hidden,
                              .out_f32 = true},
      [moep_matmul_up] = {.n = dims->width, .k = dims->hidden},
      [moep_matmul_down] = {.n = dims->hidden,
                            .k = dims->width,
                            .out_f32 = y_f32},
  };
  for (size_t i = 0; i < plan->recipe->step_count; i++) {
    const struct moep_step* step = &plan->recipe->steps[i];
    const enum moep_matmul_id id = moep_matmul_of(step->op);
    if (id == MOEP_MATMUL_COUNT || !step_needed(dims, step)) continue;
    struct moep_matmul* matmul = &plan->matmuls[id];
    if (matmul->rows != 0) continue; /* up after gate */
    *matmul = shapes[id];
    matmul->rows = plan->rows;
    matmul->sm_limit = plan->options.sm_limit < plan->planner->device.sm_count
                           ? plan->options.sm_limit
                           : 0;
    MOEP_TRY(moep_matmul_choose(plan->planner, matmul));
  }
  return moeplan_status_success;
}

/* One part's nodes, in order. */
static enum moeplan_status fill_part(struct moeplan_plan* plan, uint32_t begin,
                                     uint32_t count, struct moep_node* nodes) {
  const struct moeplan_planner* planner = plan->planner;
  const struct moep_dims* dims = &planner->dims;
  const bool host = moep_device_is_host(&planner->device);
  for (size_t i = 0; i < plan->recipe->step_count; i++) {
    const struct moep_step* step = &plan->recipe->steps[i];
    if (!step_needed(dims, step)) continue;
    const struct moep_kernel_use use = {
        .rows = count,
        .widths = moep_widths(dims, step->op),
        .base = moep_tile_is_base(plan->tile),
    };
    const enum moep_matmul_id matmul = moep_matmul_of(step->op);
    const struct moep_kernel* kernel =
        matmul != MOEP_MATMUL_COUNT
            ? moep_matmul_kernel(step->op)
            : moep_kernel_find(&planner->device, step->op, &use);
    if (kernel == NULL) {
      return MOEP_REFUSE(&planner->hooks, unsupported_device,
                         "cannot plan recipe %s on %s: no kernel for %s on "
                         "sm_%u",
                         plan->recipe->name, planner->device.name,
                         moep_op_name(step->op), planner->device.sm);
    }
    *nodes = (struct moep_node){
        .step = step,
        .kernel = kernel,
        .row_begin = begin,
        .row_count = count,
        .matmul = matmul,
        .launch = {.threads = host ? plan->options.sm_limit : 0,
                   .pdl = matmul == MOEP_MATMUL_COUNT &&
                          planner->device.sm >= MOEP_PDL_MIN_SM &&
                          !plan->options.no_pdl,
                   .shared_bytes = planner->device.shared_bytes},
    };
    moep_cost_fill(plan, nodes);
    nodes++;
  }
  return moeplan_status_success;
}

static enum moeplan_status fill_nodes(struct moeplan_plan* plan,
                                      uint32_t steps) {
  const uint32_t cap =
      part_cap(plan->recipe, &plan->planner->dims, &plan->options);
  for (uint32_t part = 0; part < plan->parts; part++) {
    const struct moep_group group = cap == 0
                                        ? (struct moep_group){0, plan->rows}
                                        : moep_group_at(plan->rows, cap, part);
    MOEP_TRY(fill_part(plan, group.begin, group.count,
                       plan->nodes + (size_t)part * steps));
  }
  return moeplan_status_success;
}

/* Lines for the log: each lever away from its default, and the plan's kind the
 * first time. */
static enum moeplan_status announce(const struct moeplan_plan* plan) {
  struct moeplan_planner* planner = plan->planner;
  struct moep_lever lever;
  if (planner->hooks.log == NULL) return moeplan_status_success;
  for (uint32_t i = 0; moep_lever_at(&plan->options, i, &lever); i++) {
    moep_log(&planner->hooks, moeplan_log_warning, "plan of %u rows: %s (%s)",
             plan->rows, lever.text, lever.variable);
  }
  for (struct moep_announced* a = planner->announced; a != NULL; a = a->next) {
    if (a->rows == plan->rows && a->parts == plan->parts &&
        a->recipe == plan->recipe->id && a->tile == plan->tile->name) {
      return moeplan_status_success;
    }
  }
  struct moep_announced* record =
      moep_allocate(&planner->hooks, sizeof(*record));
  if (record == NULL) return moeplan_status_out_of_memory;
  *record = (struct moep_announced){
      .next = planner->announced,
      .rows = plan->rows,
      .parts = plan->parts,
      .recipe = plan->recipe->id,
      .tile = plan->tile->name,
  };
  planner->announced = record;
  const char* variable =
      moep_recipe_lever(&planner->dims, plan->rows, &plan->options);
  moep_log(&planner->hooks, moeplan_log_info,
           "plan of %u rows: recipe %s, %u nodes, %u groups, tile %s; %s "
           "chooses another",
           plan->rows, plan->recipe->name, plan->node_count, plan->parts,
           plan->tile->name, variable == NULL ? "no lever" : variable);
  return moeplan_status_success;
}

static enum moeplan_status check_rows(const struct moeplan_planner* planner,
                                      uint32_t rows) {
  if (rows == 0 || rows > planner->dims.max_rows) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot plan %u rows: must be 1 to max_rows %u", rows,
                       planner->dims.max_rows);
  }
  return moeplan_status_success;
}

/* Rows up to 8 keep their bits in TIERED; the host device keeps all. */
static bool uses_cublaslt(const struct moeplan_planner* planner, uint32_t rows,
                          const struct moeplan_options* options) {
  return options->numerics == moeplan_numerics_tiered && !options->no_cublas &&
         rows > MOEP_UNION_ROWS && !moep_device_is_host(&planner->device);
}

/* Everything of the plan but its nodes. */
static enum moeplan_status choose(struct moeplan_planner* planner,
                                  uint32_t rows,
                                  const struct moeplan_options* options,
                                  struct moeplan_plan* plan) {
  *plan = (struct moeplan_plan){.planner = planner, .rows = rows};
  MOEP_TRY(moep_options_read(options, &planner->hooks, &plan->options));
  plan->recipe = moep_recipe_find(
      moep_recipe_choose(&planner->dims, rows, &plan->options));
  MOEP_TRY(check_recipe(planner, plan->recipe, rows, &plan->options));
  if (uses_cublaslt(planner, rows, &plan->options)) {
    const struct moep_recipe* tiered =
        moep_recipe_find_tiered(plan->recipe->id);
    if (tiered != NULL) plan->recipe = tiered;
  }
  plan->tile =
      moep_tile_choose(&planner->dims, rows, &plan->options, plan->recipe->id);
  if (plan->options.tile != NULL) {
    plan->options.tile = moep_tile_find(plan->options.tile)->name;
  }
  const uint32_t cap = part_cap(plan->recipe, &planner->dims, &plan->options);
  plan->parts = cap == 0 ? 1 : moep_group_count(rows, cap);
  moep_layout_compute(&planner->dims, rows, plan->options.numerics,
                      &plan->layout);
  return moeplan_status_success;
}

enum moeplan_status moeplan_plan_create(moeplan_planner_t planner,
                                        uint32_t rows,
                                        const struct moeplan_options* options,
                                        moeplan_plan_t* plan_out) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (plan_out == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot create a plan: plan_out must not be NULL");
  }
  MOEP_TRY(check_rows(planner, rows));
  struct moeplan_plan head;
  MOEP_TRY(choose(planner, rows, options, &head));
  uint32_t steps = 0;
  for (size_t i = 0; i < head.recipe->step_count; i++) {
    steps += step_needed(&planner->dims, &head.recipe->steps[i]) ? 1 : 0;
  }
  const uint64_t nodes = (uint64_t)steps * head.parts;
  if (nodes > MOEP_MAX_NODES) {
    return MOEP_REFUSE(&planner->hooks, unsupported_option,
                       "cannot plan %u rows by recipe %s: %llu nodes, at most "
                       "%d",
                       rows, head.recipe->name, (unsigned long long)nodes,
                       MOEP_MAX_NODES);
  }
  head.node_count = (uint32_t)nodes;
  struct moeplan_plan* plan = moep_allocate(
      &planner->hooks, sizeof(*plan) + nodes * sizeof(plan->nodes[0]));
  if (plan == NULL) return moeplan_status_out_of_memory;
  *plan = head;
  enum moeplan_status status = choose_matmuls(plan);
  if (status == moeplan_status_success) status = fill_nodes(plan, steps);
  if (status == moeplan_status_success) status = announce(plan);
  if (status != moeplan_status_success) {
    moep_release(&planner->hooks, plan);
    return status;
  }
  *plan_out = plan;
  return moeplan_status_success;
}

void moeplan_plan_destroy(moeplan_plan_t plan) {
  if (plan != NULL) moep_release(&plan->planner->hooks, plan);
}

enum moeplan_status moeplan_workspace_size(
    moeplan_planner_t planner, uint32_t max_rows,
    const struct moeplan_options* options, size_t* bytes_out) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (bytes_out == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot size a workspace: bytes_out must not be NULL");
  }
  MOEP_TRY(check_rows(planner, max_rows));
  struct moeplan_options checked;
  MOEP_TRY(moep_options_read(options, &planner->hooks, &checked));
  struct moep_layout layout;
  moep_layout_compute(&planner->dims, max_rows, checked.numerics, &layout);
  *bytes_out = layout.total_bytes;
  return moeplan_status_success;
}

enum moeplan_status moeplan_plan_info(moeplan_plan_t plan,
                                      struct moeplan_plan_info* info_out) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  if (info_out == NULL) {
    return MOEP_REFUSE(&plan->planner->hooks, invalid_argument,
                       "cannot describe a plan: info_out must not be NULL");
  }
  MOEP_CHECK_STRUCT(&plan->planner->hooks, info_out);
  struct moeplan_plan_info info = {
      .struct_bytes = sizeof(info),
      .rows = plan->rows,
      .recipe = plan->recipe->id,
      .recipe_name = plan->recipe->name,
      .groups = plan->parts,
      .nodes = plan->node_count,
      .tile = plan->tile->name,
      .workspace_bytes = plan->layout.total_bytes,
  };
  for (uint32_t i = 0; i < plan->node_count; i++) {
    info.bytes += plan->nodes[i].bytes;
    info.flop += plan->nodes[i].flop;
    info.floor_seconds +=
        moep_node_floor(&plan->planner->device, &plan->nodes[i]);
  }
  *info_out = info;
  return moeplan_status_success;
}
