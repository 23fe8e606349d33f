/* group: the rows of one group, at most 8, from x to y: logits and the shared
 * expert's first half, routing, then the experts of the rows' union. */

#include "kernels/host/expert_nvfp4_host.h"
#include "kernels/host/ffn_bf16_host.h"
#include "kernels/host/parallel.h"
#include "kernels/host/route_f32_host.h"
#include "kernels/kernels.h"
#include "kernels/union.h"

/* A union table on the stack. */
struct table {
  uint32_t used;
  int32_t eid[MOEP_UNION_ENTRIES];
  int32_t slot[MOEP_UNION_ENTRIES * MOEP_UNION_ROWS];
};

static void table_build(const int32_t* ids, const struct moep_rows* rows,
                        uint32_t topk, uint32_t experts, struct table* table) {
  table->used =
      moep_union_build(ids + (uint64_t)rows->begin * topk, rows->count, topk,
                       experts, table->eid, table->slot);
}

/* The slots of entry u: absolute, in row order. */
static struct moep_slots table_slots(const struct table* table, uint32_t u,
                                     const struct moep_rows* rows,
                                     uint32_t topk) {
  struct moep_slots slots = {.count = 0};
  for (uint32_t r = 0; r < rows->count; r++) {
    const int32_t j = table->slot[u * MOEP_UNION_ROWS + r];
    if (j < 0) continue;
    slots.slot[slots.count++] =
        (uint64_t)(rows->begin + r) * topk + (uint32_t)j;
  }
  return slots;
}

struct work {
  const struct moep_group_args* args;
  const struct table* table;
  uint32_t live; /* live rows of the group */
};

static void front(const struct moep_group_args* args, uint32_t threads) {
  const struct moep_route_args* route = &args->route;
  const struct moep_logits_args logits = {
      .rows = route->rows,
      .x = args->x,
      .site = route->site,
      .external_ids = route->external_ids,
      .logits = route->logits,
      .hidden = args->hidden,
      .experts = route->rule.experts,
      .tap = args->tap,
  };
  const struct moep_ffn_up_args up = {
      .rows = route->rows,
      .x = args->x,
      .site = route->site,
      .h = args->ffn_h,
      .hidden = args->hidden,
      .width = args->width,
      .limit = args->limit,
      .tap = args->tap,
  };
  moep_host_logits(&logits, threads);
  moep_host_ffn_up(&up, threads);
}

static void up_item(const void* context, uint32_t item) {
  const struct work* work = context;
  const struct moep_group_args* args = work->args;
  const struct moep_route_args* route = &args->route;
  const uint32_t topk = route->rule.topk;
  const uint32_t panels = args->inter / MOEP_PANEL_N;
  const uint32_t u = item / panels;
  const int32_t id = work->table->eid[u];
  if (!moep_host_expert_here(route->site, id, route->rule.experts)) return;
  struct moep_slots slots = table_slots(work->table, u, &route->rows, topk);
  for (uint32_t i = 0; i < slots.count; i++) {
    slots.x[i] = args->x.data + slots.slot[i] / topk * args->x.stride;
    slots.h[i] = args->h + slots.slot[i] * moep_padded_k(args->inter);
  }
  moep_host_expert_up_panel(
      &route->site->experts[id], args->hidden, args->inter, args->limit,
      item % panels * MOEP_PANEL_N, &slots, moep_order_natural, &args->tap);
}

/* Routed slots of 8 columns: out[row of the group * topk + j]. */
static void down_slots(const struct work* work, uint32_t n0,
                       float out[][MOEP_PANEL_N]) {
  const struct moep_group_args* args = work->args;
  const struct moep_route_args* route = &args->route;
  const uint32_t topk = route->rule.topk;
  const uint64_t slot0 = (uint64_t)route->rows.begin * topk;
  for (uint32_t u = 0; u < work->table->used; u++) {
    const int32_t id = work->table->eid[u];
    if (!moep_host_expert_here(route->site, id, route->rule.experts)) continue;
    struct moep_slots slots = table_slots(work->table, u, &route->rows, topk);
    for (uint32_t i = 0; i < slots.count; i++) {
      slots.x[i] = args->h + slots.slot[i] * moep_padded_k(args->inter);
    }
    float part[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_host_expert_down_panel(&route->site->experts[id], args->hidden,
                                args->inter, n0, &slots, part, &args->tap);
    for (uint32_t i = 0; i < slots.count; i++) {
      memcpy(out[slots.slot[i] - slot0], part[i], sizeof(part[i]));
    }
  }
}

static void down_shared(const struct work* work, uint32_t n0,
                        float out[][MOEP_PANEL_N]) {
  const struct moep_group_args* args = work->args;
  const uint64_t row0 = args->route.rows.begin;
  const uint16_t* h[MOEP_UNION_ROWS];
  for (uint32_t r = 0; r < work->live; r++) {
    h[r] = args->ffn_h + (row0 + r) * args->width;
  }
  moep_host_ffn_down_panel(&args->route.site->ffn, args->hidden, args->width,
                           n0, h, work->live, out);
  if (args->tap.ffn_down == NULL) return;
  for (uint32_t r = 0; r < work->live; r++) {
    memcpy(args->tap.ffn_down + (row0 + r) * args->hidden + n0, out[r],
           sizeof(out[r]));
  }
}

static void down_item(const void* context, uint32_t item) {
  const struct work* work = context;
  const struct moep_group_args* args = work->args;
  const struct moep_route_args* route = &args->route;
  const uint32_t n0 = item * MOEP_PANEL_N, topk = route->rule.topk;
  float routed[MOEP_UNION_ENTRIES][MOEP_PANEL_N];
  float shared[MOEP_UNION_ROWS][MOEP_PANEL_N];
  down_slots(work, n0, routed);
  if (args->width != 0) down_shared(work, n0, shared);
  for (uint32_t r = 0; r < work->live; r++) {
    const uint64_t row = route->rows.begin + r;
    const int32_t* ids = route->ids + row * topk;
    const float* weights = route->weights + row * topk;
    for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
      float sum = 0.0f;
      for (uint32_t j = 0; j < topk; j++) {
        if (!moep_host_expert_here(route->site, ids[j], route->rule.experts)) {
          continue;
        }
        /* down_slots has set the slots of every expert that is here. */
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        sum = moep_fma(weights[j], routed[r * topk + j][i], sum);
      }
      if (args->width != 0) sum = sum + shared[r][i];
      moep_host_store_y(&args->y, row, n0 + i, sum);
    }
  }
}

cudaError_t moep_group_nvfp4_host(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  (void)stream;
  const struct moep_group_args* group = &args->group;
  const struct moep_route_args* route = &group->route;
  const uint32_t threads = launch->threads;
  front(group, threads);
  moep_host_route(route);
  moep_host_trace_advance(route->trace.cursor, &route->rows);
  struct table table;
  table_build(route->ids, &route->rows, route->rule.topk, route->rule.experts,
              &table);
  const struct work work = {
      .args = group,
      .table = &table,
      .live = moep_rows_alive(&route->rows),
  };
  moep_parallel(
      table.used * (group->inter / MOEP_PANEL_N),
      2ull * table.used * group->inter * (group->hidden / MOEP_STEP_K), threads,
      up_item, &work);
  if (work.live == 0) return cudaSuccess;
  moep_parallel(group->hidden / MOEP_PANEL_N,
                (uint64_t)group->hidden *
                    (table.used * (group->inter / MOEP_STEP_K) +
                     route->rows.count * (group->width / MOEP_STEP_K)),
                threads, down_item, &work);
  return cudaSuccess;
}
