#include "tools/bench_config.h"

#include <string.h>

#include "tools/presets.h"
#include "tools/shape.h"

/* The site by --hidden and so on. */
static enum tool_status config_by_sizes(const struct tool_args* args,
                                        struct moeplan_config* config,
                                        struct tool_error* error) {
  const struct tool_bench_args* sizes = &args->bench;
  const bool dense = args->kind != NULL ? strcmp(args->kind, "dense") == 0
                                        : sizes->experts == 0;
  *config = (struct moeplan_config)MOEPLAN_CONFIG_INIT;
  config->kind = dense ? moeplan_site_dense : moeplan_site_routed;
  config->hidden_size = sizes->hidden;
  if (dense) {
    config->dense_local_intermediate = sizes->intermediate;
  } else {
    config->moe_intermediate_size = sizes->intermediate;
    config->n_routed_experts = sizes->experts;
    config->num_experts_per_tok = sizes->topk;
    config->shared_local_intermediate = sizes->shared;
  }
  if (sizes->intermediate == 0) {
    return tool_refuse(error, "cannot use --hidden %u without --intermediate I",
                       sizes->hidden);
  }
  if (dense ? sizes->experts + sizes->topk + sizes->shared != 0
            : sizes->experts == 0 || sizes->topk == 0) {
    return tool_refuse(error,
                       "cannot use a %s site: --experts E and --top-k K are "
                       "%s",
                       dense ? "dense" : "routed",
                       dense ? "a routed one's, and --shared W" : "needed");
  }
  return tool_ok;
}

enum tool_status tool_bench_config(const struct tool_args* args,
                                   struct moeplan_config* config,
                                   struct tool_error* error) {
  const struct tool_bench_args* sizes = &args->bench;
  struct tool_shape shape;
  if (sizes->hidden != 0) return config_by_sizes(args, config, error);
  if (sizes->intermediate + sizes->experts + sizes->topk + sizes->shared != 0) {
    return tool_refuse(error,
                       "cannot use --intermediate, --experts, --top-k or "
                       "--shared with a model: --hidden H goes with them");
  }
  const enum tool_status status =
      args->preset != NULL ? tool_preset_find(args->preset, &shape, error)
                           : tool_shape_read(args->config, &shape, error);
  if (status != tool_ok) return status;
  const bool dense = args->kind != NULL ? strcmp(args->kind, "dense") == 0
                                        : shape.n_routed_experts == 0;
  tool_shape_config(&shape, dense ? moeplan_site_dense : moeplan_site_routed,
                    config);
  return tool_ok;
}

enum tool_status tool_bench_check_routing(const struct tool_args* args,
                                          const struct moeplan_config* config,
                                          uint32_t max_rows,
                                          struct tool_error* error) {
  const enum tool_routing routing = args->bench.routing;
  if (config->kind == moeplan_site_dense) {
    if (routing == tool_routing_router) return tool_ok;
    return tool_refuse(error, "cannot use --routing %s for a dense site",
                       tool_routing_names[routing]);
  }
  const struct tool_draw draw = {
      .routing = routing,
      .rows = max_rows,
      .experts = config->n_routed_experts,
      .k = config->num_experts_per_tok,
  };
  return tool_routing_check(&draw, error);
}
