#include "lib/cost.h"

enum {
  MAX_GRID_Y = 65535,
  /* Blocks that count as one SM's under sm_limit: the kernels' blocks are small
   * (1 to 8 warps) and wait for memory, one alone keeps no SM busy. A choice,
   * not a measurement. */
  BLOCKS_PER_SM = 4,
};

/* Sizes of one node, widened once. */
struct sizes {
  uint64_t rows, slots;
  uint64_t x_rows;      /* of x in p order: sm_90 has one for each slot */
  uint64_t experts_hit; /* that the slots can reach on this rank */
  uint64_t hidden, hidden_padded, inter, inter_padded, experts, width;
  uint64_t y_bytes; /* per element */
};

struct cost {
  uint64_t columns; /* of output, over the grid's x */
  uint64_t entries; /* over the grid's y */
  uint64_t bytes, flop;
};

/* NVFP4: half a byte and a sixteenth of a scale byte per weight. */
static uint64_t nvfp4_bytes(uint64_t weights) { return weights / 16 * 9; }

static uint64_t row_tiles(const struct sizes* s) { return (s->rows + 7) / 8; }

static struct cost cost_logits(const struct sizes* s) {
  return (struct cost){
      .columns = s->experts,
      .entries = row_tiles(s),
      .bytes = 2 * s->experts * s->hidden + 2 * s->rows * s->hidden +
               4 * s->rows * s->experts,
      .flop = 2 * s->rows * s->experts * s->hidden,
  };
}

static struct cost cost_ffn_up(const struct sizes* s) {
  return (struct cost){
      .columns = s->width,
      .entries = row_tiles(s),
      .bytes = 4 * s->width * s->hidden + 2 * s->rows * s->hidden +
               2 * s->rows * s->width,
      .flop = 4 * s->rows * s->width * s->hidden,
  };
}

static struct cost cost_route(const struct sizes* s) {
  return (struct cost){
      .entries = s->rows,
      .bytes = 4 * s->rows * s->experts + 8 * s->slots,
  };
}

/* x and h are read where they were written, in the L2 or nearer: once. */
static struct cost cost_group(const struct sizes* s) {
  const struct cost logits = cost_logits(s), ffn = cost_ffn_up(s);
  return (struct cost){
      .columns = s->inter,
      .entries = s->experts_hit,
      .bytes = logits.bytes + ffn.bytes - 2 * s->rows * s->hidden +
               s->experts_hit * nvfp4_bytes(3 * s->inter * s->hidden) +
               2 * s->width * s->hidden + 2 * s->slots * s->inter_padded +
               8 * s->slots + s->rows * s->hidden * s->y_bytes,
      .flop = logits.flop + ffn.flop + 6 * s->slots * s->inter * s->hidden +
              2 * s->rows * s->width * s->hidden + 2 * s->slots * s->hidden,
  };
}

static struct cost cost_sort(const struct sizes* s) {
  return (struct cost){
      .entries = (s->slots + MOEP_SORT_TILE - 1) / MOEP_SORT_TILE,
      .bytes = 12 * s->slots,
  };
}

/* One block: it adds the tiles up. */
static struct cost cost_sort_scan(const struct sizes* s) {
  return (struct cost){.entries = 1, .bytes = 12 * s->slots};
}

static struct cost cost_permute_x(const struct sizes* s) {
  return (struct cost){
      .entries = s->rows,
      .bytes = 2 * s->rows * s->hidden + 2 * s->x_rows * s->hidden_padded,
  };
}

static struct cost cost_grouped_up(const struct sizes* s) {
  return (struct cost){
      .columns = s->inter,
      .entries = s->experts_hit,
      .bytes = s->experts_hit * nvfp4_bytes(2 * s->inter * s->hidden) +
               2 * s->x_rows * s->hidden_padded +
               2 * s->slots * s->inter_padded,
      .flop = 4 * s->slots * s->inter * s->hidden,
  };
}

static struct cost cost_grouped_down(const struct sizes* s) {
  return (struct cost){
      .columns = s->hidden,
      .entries = s->experts_hit,
      .bytes = s->experts_hit * nvfp4_bytes(s->inter * s->hidden) +
               2 * s->slots * (s->inter_padded + s->hidden),
      .flop = 2 * s->slots * s->inter * s->hidden,
  };
}

static struct cost cost_ffn_down(const struct sizes* s) {
  return (struct cost){
      .columns = s->hidden,
      .entries = row_tiles(s),
      .bytes = 2 * s->width * s->hidden + 2 * s->rows * s->width +
               s->rows * s->hidden * (s->experts != 0 ? 4 : s->y_bytes),
      .flop = 2 * s->rows * s->width * s->hidden,
  };
}

static struct cost cost_combine(const struct sizes* s) {
  return (struct cost){
      .entries = s->rows,
      .bytes = 2 * s->slots * s->hidden + 12 * s->slots +
               s->rows * s->hidden * (s->y_bytes + (s->width != 0 ? 4 : 0)),
      .flop = 2 * s->slots * s->hidden,
  };
}

/* gate or up. */
static struct cost cost_matmul_up(const struct sizes* s) {
  return (struct cost){
      .bytes = 2 * s->width * s->hidden + 2 * s->rows * s->hidden +
               2 * s->rows * s->width,
      .flop = 2 * s->rows * s->width * s->hidden,
  };
}

static struct cost cost_swiglu(const struct sizes* s) {
  return (struct cost){.bytes = 6 * s->rows * s->width};
}

static struct cost (*const cost_of_op[MOEP_OP_COUNT])(const struct sizes*) = {
    [moep_op_group] = cost_group,
    [moep_op_logits] = cost_logits,
    [moep_op_ffn_up] = cost_ffn_up,
    [moep_op_route] = cost_route,
    [moep_op_sort_count] = cost_sort,
    [moep_op_sort_scan] = cost_sort_scan,
    [moep_op_sort_scatter] = cost_sort,
    [moep_op_permute_x] = cost_permute_x,
    [moep_op_grouped_up] = cost_grouped_up,
    [moep_op_grouped_down] = cost_grouped_down,
    [moep_op_ffn_down] = cost_ffn_down,
    [moep_op_combine] = cost_combine,
    [moep_op_swiglu] = cost_swiglu,
    [moep_op_matmul_logits] = cost_logits,
    [moep_op_matmul_gate] = cost_matmul_up,
    [moep_op_matmul_up] = cost_matmul_up,
    [moep_op_matmul_down] = cost_ffn_down,
};

static uint64_t at_least_1(uint64_t n) { return n == 0 ? 1 : n; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Blocks of a node at most. */
static uint64_t block_limit(const struct moeplan_plan* plan) {
  const struct moep_device* device = &plan->planner->device;
  const uint32_t sm_limit = plan->options.sm_limit;
  /* The host's limit is on threads: moep_launch.threads. */
  if (moep_device_is_host(device) || sm_limit == 0 ||
      sm_limit >= device->sm_count) {
    return UINT64_MAX;
  }
  return (uint64_t)sm_limit * BLOCKS_PER_SM;
}

/* A grid that covers the node, or a smaller one: kernels stride over what is
 * beyond the grid. The entries come first, because blocks that share a column
 * run side by side and read its weights together. */
static void fill_grid(const struct moeplan_plan* plan, const struct cost* cost,
                      struct moep_node* node) {
  const uint32_t block_n = node->kernel->block_n;
  const uint64_t limit = block_limit(plan);
  if (node->kernel->blocks != 0) {
    const uint32_t all = plan->planner->device.sm_count;
    const uint32_t sms = plan->options.sm_limit;
    node->launch.grid[0] =
        node->kernel->blocks * (sms != 0 && sms < all ? sms : all);
    node->launch.grid[1] = 1;
    return;
  }
  /* Nothing may be left to do (no expert is local), but no grid is empty. */
  const uint64_t entries = at_least_1(cost->entries);
  if (block_n == 0) {
    node->launch.grid[0] = (uint32_t)least(entries, limit);
    node->launch.grid[1] = 1;
    return;
  }
  const uint64_t columns = at_least_1((cost->columns + block_n - 1) / block_n);
  const uint64_t y = least(least(entries, MAX_GRID_Y), limit);
  node->launch.grid[0] = (uint32_t)least(columns, limit / y);
  node->launch.grid[1] = (uint32_t)y;
}

void moep_cost_fill(const struct moeplan_plan* plan, struct moep_node* node) {
  const struct moep_dims* dims = &plan->planner->dims;
  const uint64_t slots = (uint64_t)node->row_count * dims->topk;
  const struct sizes sizes = {
      .rows = node->row_count,
      .slots = slots,
      .x_rows = moep_tile_is_base(plan->tile) ||
                        moep_device_is_host(&plan->planner->device)
                    ? node->row_count
                    : slots,
      .experts_hit = slots < dims->local_experts ? slots : dims->local_experts,
      .hidden = dims->hidden,
      .hidden_padded = moep_padded_k(dims->hidden),
      .inter = dims->inter,
      .inter_padded = moep_padded_k(dims->inter),
      .experts = dims->experts,
      .width = dims->width,
      .y_bytes = plan->options.y_type == moeplan_dtype_f32 ? 4 : 2,
  };
  const struct cost cost = cost_of_op[node->step->op](&sizes);
  node->bytes = cost.bytes;
  node->flop = cost.flop;
  fill_grid(plan, &cost, node);
}

double moep_node_floor(const struct moep_device* device,
                       const struct moep_node* node) {
  if (device->bytes_per_second == 0.0) return 0.0;
  const double bytes = (double)node->bytes / device->bytes_per_second;
  /* A rate that is not known bounds nothing. */
  if (device->flop_per_second == 0.0) return bytes;
  const double flop = (double)node->flop / device->flop_per_second;
  return bytes > flop ? bytes : flop;
}
