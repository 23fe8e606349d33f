#include "lib/enqueue.h"

#include "lib/check.h"

/* What every argument struct is built from. */
struct source {
  const struct moeplan_plan* plan;
  const struct moep_node* node;
  const struct moeplan_binding* binding;
  const struct moep_dims* dims;
  struct moep_tap tap;
};

/* Address of a buffer, typed by its use. */
static void* at(const struct source* s, enum moep_buffer buffer) {
  return (char*)s->binding->workspace + s->plan->layout.buffers[buffer].offset;
}

static struct moep_rows rows_of(const struct source* s) {
  return (struct moep_rows){
      .begin = s->node->row_begin,
      .count = s->node->row_count,
      .total = s->plan->rows,
      .live_rows = s->binding->live_rows,
  };
}

static uint32_t slots_of(const struct source* s) {
  return s->node->row_count * s->dims->topk;
}

static struct moep_x x_of(const struct source* s) {
  return (struct moep_x){.data = s->binding->x, .stride = s->binding->x_stride};
}

static struct moep_y y_of(const struct source* s) {
  return (struct moep_y){
      .data = s->binding->y,
      .stride = s->binding->y_stride,
      .is_f32 = s->plan->options.y_type == moeplan_dtype_f32,
  };
}

static struct moep_logits_args logits_of(const struct source* s) {
  return (struct moep_logits_args){
      .rows = rows_of(s),
      .x = x_of(s),
      .site = s->binding->site,
      .external_ids = s->binding->topk_ids,
      .logits = at(s, moep_buffer_logits),
      .hidden = s->dims->hidden,
      .experts = s->dims->experts,
      .tap = s->tap,
  };
}

static struct moep_ffn_up_args ffn_up_of(const struct source* s) {
  return (struct moep_ffn_up_args){
      .rows = rows_of(s),
      .x = x_of(s),
      .site = s->binding->site,
      .h = at(s, moep_buffer_ffn_h),
      .hidden = s->dims->hidden,
      .width = s->dims->width,
      .limit = s->dims->limit,
      .tap = s->tap,
  };
}

static struct moep_route_args route_of(const struct source* s) {
  return (struct moep_route_args){
      .rows = rows_of(s),
      .rule = s->dims->rule,
      .site = s->binding->site,
      .logits = at(s, moep_buffer_logits),
      .external_ids = s->binding->topk_ids,
      .external_weights = s->binding->topk_weights,
      .ids = at(s, moep_buffer_topk_ids),
      .weights = at(s, moep_buffer_topk_weights),
      .trace = {.ids = s->binding->trace.ids,
                .weights = s->binding->trace.weights,
                .cursor = s->binding->trace.cursor,
                .capacity = s->binding->trace.capacity_rows},
  };
}

static struct moep_sort_args sort_of(const struct source* s) {
  return (struct moep_sort_args){
      .rows = rows_of(s),
      .ids = at(s, moep_buffer_topk_ids),
      .counts = at(s, moep_buffer_sort_counts),
      .expert_offsets = at(s, moep_buffer_expert_offsets),
      .sorted_slots = at(s, moep_buffer_sorted_slots),
      .token_to_perm = at(s, moep_buffer_token_to_perm),
      .trace_cursor = s->binding->trace.cursor,
      .slots = slots_of(s),
      .topk = s->dims->topk,
      .experts = s->dims->experts,
  };
}

static struct moep_grouped_args grouped_of(const struct source* s) {
  return (struct moep_grouped_args){
      .site = s->binding->site,
      .expert_offsets = at(s, moep_buffer_expert_offsets),
      .sorted_slots = at(s, moep_buffer_sorted_slots),
      .xp = at(s, moep_buffer_xp),
      .slot_x = at(s, moep_buffer_slot_out),
      .h = at(s, moep_buffer_expert_h),
      .slot_out = at(s, moep_buffer_slot_out),
      .expert_begin = 0,
      .expert_count = s->dims->experts,
      .hidden = s->dims->hidden,
      .inter = s->dims->inter,
      .topk = s->dims->topk,
      .slots = slots_of(s),
      .tile = s->plan->tile->tokens,
      .limit = s->dims->limit,
      .tap = s->tap,
  };
}

static void fill_group(const struct source* s, union moep_args* args) {
  args->group = (struct moep_group_args){
      .route = route_of(s),
      .x = x_of(s),
      .h = at(s, moep_buffer_expert_h),
      .ffn_h = at(s, moep_buffer_ffn_h),
      .y = y_of(s),
      .hidden = s->dims->hidden,
      .inter = s->dims->inter,
      .width = s->dims->width,
      .limit = s->dims->limit,
      .tap = s->tap,
  };
}

static void fill_logits(const struct source* s, union moep_args* args) {
  args->logits = logits_of(s);
}

static void fill_ffn_up(const struct source* s, union moep_args* args) {
  args->ffn_up = ffn_up_of(s);
}

static void fill_route(const struct source* s, union moep_args* args) {
  args->route = route_of(s);
}

static void fill_sort(const struct source* s, union moep_args* args) {
  args->sort_count = sort_of(s);
}

static void fill_permute_x(const struct source* s, union moep_args* args) {
  args->permute_x = (struct moep_permute_x_args){
      .rows = rows_of(s),
      .x = x_of(s),
      .site = s->binding->site,
      .ids = at(s, moep_buffer_topk_ids),
      .expert_offsets = at(s, moep_buffer_expert_offsets),
      .token_to_perm = at(s, moep_buffer_token_to_perm),
      .xp = at(s, moep_buffer_xp),
      .slot_x = at(s, moep_buffer_slot_out),
      .hidden = s->dims->hidden,
      .slots = slots_of(s),
      .topk = s->dims->topk,
  };
}

static void fill_grouped(const struct source* s, union moep_args* args) {
  args->grouped_up = grouped_of(s);
}

/* The shared expert's half sum stays float32; a dense site's is y. */
static void fill_ffn_down(const struct source* s, union moep_args* args) {
  const struct moep_y shared = {.data = at(s, moep_buffer_ffn_out),
                                .stride = s->dims->hidden,
                                .is_f32 = 1};
  args->ffn_down = (struct moep_ffn_down_args){
      .rows = rows_of(s),
      .h = at(s, moep_buffer_ffn_h),
      .site = s->binding->site,
      .out = (s->node->step->writes & MOEP_Y) != 0 ? y_of(s) : shared,
      .hidden = s->dims->hidden,
      .width = s->dims->width,
      .tap = s->tap,
  };
}

static void fill_combine(const struct source* s, union moep_args* args) {
  args->combine = (struct moep_combine_args){
      .rows = rows_of(s),
      .site = s->binding->site,
      .ids = at(s, moep_buffer_topk_ids),
      .weights = at(s, moep_buffer_topk_weights),
      .token_to_perm = at(s, moep_buffer_token_to_perm),
      .slot_out = at(s, moep_buffer_slot_out),
      .ffn_out = s->dims->width != 0 ? at(s, moep_buffer_ffn_out) : NULL,
      .y = y_of(s),
      .hidden = s->dims->hidden,
      .topk = s->dims->topk,
      .experts = s->dims->experts,
  };
}

static void fill_swiglu(const struct source* s, union moep_args* args) {
  args->swiglu = (struct moep_swiglu_args){
      .rows = rows_of(s),
      .gate = at(s, moep_buffer_ffn_h),
      .up = at(s, moep_buffer_ffn_up),
      .h = at(s, moep_buffer_ffn_h),
      .width = s->dims->width,
      .limit = s->dims->limit,
  };
}

/* cuBLASLt wants addresses on the host: they come from the blob's copy there. */
static const struct moep_site_table* host_site(const struct source* s) {
  return s->binding->host_site;
}

/* A dense buffer of the workspace as an output. */
static struct moep_y out_at(const struct source* s, enum moep_buffer buffer,
                            uint32_t stride) {
  return (struct moep_y){.data = at(s, buffer), .stride = stride};
}

static void fill_matmul_logits(const struct source* s, union moep_args* args) {
  args->matmul_logits = (struct moep_matmul_args){
      .weight = host_site(s)->router,
      .weight_stride = s->dims->hidden,
      .x = x_of(s),
      .work = at(s, moep_buffer_matmul_work),
  };
  if (s->binding->topk_ids != NULL) return; /* routed from outside */
  args->matmul_logits.out = out_at(s, moep_buffer_logits, s->dims->experts);
}

static void fill_matmul_gate(const struct source* s, union moep_args* args) {
  args->matmul_gate = (struct moep_matmul_args){
      .weight = host_site(s)->ffn.gate,
      .weight_stride = s->dims->hidden,
      .x = x_of(s),
      .out = out_at(s, moep_buffer_ffn_h, s->dims->width),
      .work = at(s, moep_buffer_matmul_work),
  };
}

static void fill_matmul_up(const struct source* s, union moep_args* args) {
  args->matmul_up = (struct moep_matmul_args){
      .weight = host_site(s)->ffn.up,
      .weight_stride = s->dims->hidden,
      .x = x_of(s),
      .out = out_at(s, moep_buffer_ffn_up, s->dims->width),
      .work = at(s, moep_buffer_matmul_work),
  };
}

static void fill_matmul_down(const struct source* s, union moep_args* args) {
  args->matmul_down = (struct moep_matmul_args){
      .weight = host_site(s)->ffn.down,
      .weight_stride = host_site(s)->ffn.down_pitch,
      .x = {.data = at(s, moep_buffer_ffn_h), .stride = s->dims->width},
      .out = (s->node->step->writes & MOEP_Y) != 0
                 ? y_of(s)
                 : out_at(s, moep_buffer_ffn_out, s->dims->hidden),
      .work = at(s, moep_buffer_matmul_work),
  };
}

typedef void (*fill_fn)(const struct source* s, union moep_args* args);

static const fill_fn fill_of_op[MOEP_OP_COUNT] = {
    [moep_op_group] = fill_group,
    [moep_op_logits] = fill_logits,
    [moep_op_ffn_up] = fill_ffn_up,
    [moep_op_route] = fill_route,
    [moep_op_sort_count] = fill_sort,
    [moep_op_sort_scan] = fill_sort,
    [moep_op_sort_scatter] = fill_sort,
    [moep_op_permute_x] = fill_permute_x,
    [moep_op_grouped_up] = fill_grouped,
    [moep_op_grouped_down] = fill_grouped,
    [moep_op_ffn_down] = fill_ffn_down,
    [moep_op_combine] = fill_combine,
    [moep_op_swiglu] = fill_swiglu,
    [moep_op_matmul_logits] = fill_matmul_logits,
    [moep_op_matmul_gate] = fill_matmul_gate,
    [moep_op_matmul_up] = fill_matmul_up,
    [moep_op_matmul_down] = fill_matmul_down,
};

void moep_call_prepare(const struct moeplan_plan* plan, uint32_t index,
                       const struct moeplan_binding* binding,
                       const struct moep_tap* tap, struct moep_call* call_out) {
  const struct moep_node* node = &plan->nodes[index];
  struct source source = {
      .plan = plan,
      .node = node,
      .binding = binding,
      .dims = &plan->planner->dims,
  };
  if (tap != NULL) source.tap = *tap;
  call_out->planner = plan->planner;
  call_out->matmul =
      node->matmul == MOEP_MATMUL_COUNT ? NULL : &plan->matmuls[node->matmul];
  call_out->launch = node->kernel->launch;
  call_out->how = node->launch;
  fill_of_op[node->step->op](&source, &call_out->args);
}

enum moeplan_status moep_call_launch(const struct moeplan_hooks* hooks,
                                     const struct moep_call* call,
                                     cudaStream_t stream) {
  if (call->matmul != NULL) {
    return moep_matmul_run(call->planner, call->matmul,
                           &call->args.matmul_logits, stream);
  }
  return MOEP_CUDA(hooks, call->launch(&call->args, &call->how, stream));
}

enum moeplan_status moep_enqueue_nodes(const struct moeplan_plan* plan,
                                       const struct moeplan_binding* binding,
                                       const struct moep_tap* tap,
                                       cudaStream_t stream) {
  for (uint32_t i = 0; i < plan->node_count; i++) {
    struct moep_call call;
    moep_call_prepare(plan, i, binding, tap, &call);
    MOEP_TRY(moep_call_launch(&plan->planner->hooks, &call, stream));
  }
  return moeplan_status_success;
}
