#include "lib/dims.h"

#include <math.h>

#include "kernels/union.h"

static enum moeplan_status check_width(const struct moeplan_hooks* hooks,
                                       const char* name, uint32_t width) {
  if (width == 0 || width > MOEP_MAX_WIDTH ||
      width % MOEP_WIDTH_MULTIPLE != 0) {
    return MOEP_REFUSE(
        hooks, invalid_config,
        "cannot plan %s %u: must be a multiple of %d from %d to %d", name,
        width, MOEP_WIDTH_MULTIPLE, MOEP_WIDTH_MULTIPLE, MOEP_MAX_WIDTH);
  }
  return moeplan_status_success;
}

/* Counts of experts, groups and choices. */
static enum moeplan_status check_experts(const struct moeplan_config* config,
                                         const struct moeplan_hooks* hooks) {
  const uint32_t experts = config->n_routed_experts;
  const uint32_t topk = config->num_experts_per_tok;
  if (experts == 0 || experts > MOEP_MAX_EXPERTS) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan n_routed_experts %u: must be 1 to %d",
                       experts, MOEP_MAX_EXPERTS);
  }
  if (topk == 0 || topk > MOEP_MAX_TOPK || topk > experts) {
    return MOEP_REFUSE(
        hooks, invalid_config,
        "cannot plan num_experts_per_tok %u: must be 1 to min(%u experts, %d)",
        topk, experts, MOEP_MAX_TOPK);
  }
  if (config->local_experts != MOEPLAN_ALL_EXPERTS &&
      config->local_experts > experts) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan local_experts %u: the site has %u experts",
                       config->local_experts, experts);
  }
  if (config->n_group != 1 || config->topk_group != 1) {
    return MOEP_REFUSE(
        hooks, unsupported_config,
        "cannot plan n_group %u, topk_group %u: expert groups must be 1 and 1",
        config->n_group, config->topk_group);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_types(const struct moeplan_config* config,
                                       const struct moeplan_hooks* hooks) {
  if (config->expert_dtype != moeplan_dtype_nvfp4) {
    return MOEP_REFUSE(hooks, unsupported_config,
                       "cannot plan expert_dtype %d: must be nvfp4 (%d)",
                       (int)config->expert_dtype, (int)moeplan_dtype_nvfp4);
  }
  if (config->expert_group_size != 16) {
    return MOEP_REFUSE(hooks, unsupported_config,
                       "cannot plan expert_group_size %u: must be 16",
                       config->expert_group_size);
  }
  if (config->router_dtype != moeplan_dtype_bf16) {
    return MOEP_REFUSE(hooks, unsupported_config,
                       "cannot plan router_dtype %d: must be bf16 (%d)",
                       (int)config->router_dtype, (int)moeplan_dtype_bf16);
  }
  if (config->scoring != moeplan_scoring_sigmoid &&
      config->scoring != moeplan_scoring_softmax) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan scoring %d: must be sigmoid or softmax",
                       (int)config->scoring);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_routed(const struct moeplan_config* config,
                                        const struct moeplan_hooks* hooks) {
  MOEP_TRY(check_experts(config, hooks));
  MOEP_TRY(check_types(config, hooks));
  MOEP_TRY(check_width(hooks, "moe_intermediate_size",
                       config->moe_intermediate_size));
  if (config->shared_local_intermediate != 0) {
    MOEP_TRY(check_width(hooks, "shared_local_intermediate",
                         config->shared_local_intermediate));
  }
  if (config->dense_local_intermediate != 0) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan dense_local_intermediate %u of a routed "
                       "site: must be 0",
                       config->dense_local_intermediate);
  }
  if (!isfinite(config->routed_scaling_factor)) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan routed_scaling_factor %g: must be finite",
                       (double)config->routed_scaling_factor);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_dense(const struct moeplan_config* config,
                                       const struct moeplan_hooks* hooks) {
  MOEP_TRY(check_width(hooks, "dense_local_intermediate",
                       config->dense_local_intermediate));
  if (config->moe_intermediate_size != 0 || config->n_routed_experts != 0 ||
      config->shared_local_intermediate != 0) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan a dense site with %u routed experts, "
                       "intermediates %u routed, %u shared: must be 0",
                       config->n_routed_experts, config->moe_intermediate_size,
                       config->shared_local_intermediate);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_config(const struct moeplan_config* config,
                                        const struct moeplan_hooks* hooks) {
  MOEP_CHECK_STRUCT(hooks, config);
  MOEP_TRY(check_width(hooks, "hidden_size", config->hidden_size));
  if (config->max_rows == 0 || config->max_rows > MOEP_MAX_ROWS) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan max_rows %u: must be 1 to %d",
                       config->max_rows, MOEP_MAX_ROWS);
  }
  if (!(config->swiglu_limit > 0.0f)) {
    return MOEP_REFUSE(hooks, invalid_config,
                       "cannot plan swiglu_limit %g: must be above 0, or "
                       "MOEPLAN_NO_SWIGLU_LIMIT",
                       (double)config->swiglu_limit);
  }
  switch (config->kind) {
    case moeplan_site_routed:
      return check_routed(config, hooks);
    case moeplan_site_dense:
      return check_dense(config, hooks);
  }
  return MOEP_REFUSE(hooks, invalid_config,
                     "cannot plan site kind %d: must be routed or dense",
                     (int)config->kind);
}

uint32_t moep_widths(const struct moep_dims* dims, enum moep_op op) {
  switch (op) {
    case moep_op_ffn_up:
    case moep_op_ffn_down:
      return dims->hidden | dims->width;
    case moep_op_permute_x:
    case moep_op_grouped_up:
    case moep_op_grouped_down:
      return dims->hidden | dims->inter;
    default:
      return dims->hidden | dims->inter | dims->width;
  }
}

enum moeplan_status moep_dims_read(const struct moeplan_config* config,
                                   const struct moeplan_hooks* hooks,
                                   struct moep_dims* dims_out) {
  MOEP_TRY(check_config(config, hooks));
  struct moep_dims dims = {
      .kind = config->kind,
      .hidden = config->hidden_size,
      .width = config->dense_local_intermediate,
      .max_rows = config->max_rows,
      .group_rows = MOEP_UNION_ROWS,
      .tiles = true,
      .limit = config->swiglu_limit,
  };
  if (config->kind == moeplan_site_routed) {
    dims.inter = config->moe_intermediate_size;
    dims.experts = config->n_routed_experts;
    dims.topk = config->num_experts_per_tok;
    dims.local_experts = config->local_experts == MOEPLAN_ALL_EXPERTS
                             ? config->n_routed_experts
                             : config->local_experts;
    dims.width = config->shared_local_intermediate;
    dims.rule = (struct moep_route_rule){
        .experts = config->n_routed_experts,
        .topk = config->num_experts_per_tok,
        .scoring = config->scoring == moeplan_scoring_softmax
                       ? moep_scoring_softmax
                       : moep_scoring_sigmoid,
        .norm_topk = config->norm_topk_prob,
        .ladder = config->router_bf16_ladder,
        .scale = config->routed_scaling_factor,
    };
  }
  *dims_out = dims;
  return moeplan_status_success;
}

enum moeplan_status moeplan_config_check(const struct moeplan_config* config) {
  struct moeplan_hooks silent;
  MOEP_TRY(moep_hooks_read(NULL, &silent));
  if (config == NULL) return moeplan_status_invalid_argument;
  struct moep_dims dims;
  return moep_dims_read(config, &silent, &dims);
}
