/* route_up, down_combine (decode) and union_up, union_down (verify): the rows of
 * one group, at most 8, over the table of their experts. Decode is a group of
 * one row whose table nobody else needs to see. */

#include "kernels/host/expert_nvfp4_host.h"
#include "kernels/host/ffn_bf16_host.h"
#include "kernels/host/parallel.h"
#include "kernels/host/route_f32_host.h"
#include "kernels/kernels.h"

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

static void table_store(const struct table* table,
                        const struct moep_union_table* memory) {
  memcpy(memory->eid, table->eid, sizeof(table->eid));
  memcpy(memory->slot, table->slot, sizeof(table->slot));
}

static void table_load(const struct moep_union_table* memory,
                       struct table* table) {
  memcpy(table->eid, memory->eid, sizeof(table->eid));
  memcpy(table->slot, memory->slot, sizeof(table->slot));
  table->used = 0;
  while (table->used < MOEP_UNION_ENTRIES && table->eid[table->used] >= 0) {
    table->used++;
  }
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

struct up_work {
  const struct moep_route_up_args* args;
  const struct table* table;
};

static void up_item(const void* context, uint32_t item) {
  const struct up_work* work = context;
  const struct moep_expert_up_args* up = &work->args->up;
  const uint32_t topk = work->args->route.rule.topk;
  const uint32_t panels = up->inter / MOEP_PANEL_N;
  const uint32_t u = item / panels;
  const int32_t id = work->table->eid[u];
  if (!moep_host_expert_here(up->site, id, work->args->route.rule.experts)) {
    return;
  }
  struct moep_slots slots =
      table_slots(work->table, u, &work->args->route.rows, topk);
  for (uint32_t i = 0; i < slots.count; i++) {
    slots.x[i] = up->x.data + slots.slot[i] / topk * up->x.stride;
    slots.h[i] = up->h + slots.slot[i] * moep_padded_k(up->inter);
  }
  moep_host_expert_up_panel(&up->site->experts[id], up->hidden, up->inter,
                            up->limit, item % panels * MOEP_PANEL_N, &slots,
                            moep_order_natural, &up->tap);
}

static void run_up(const struct moep_route_up_args* args, struct table* table,
                   uint32_t threads) {
  const struct moep_route_rule* rule = &args->route.rule;
  moep_host_route(&args->route);
  moep_host_trace_advance(args->route.trace.cursor, &args->route.rows);
  table_build(args->route.ids, &args->route.rows, rule->topk, rule->experts,
              table);
  const struct up_work work = {.args = args, .table = table};
  moep_parallel(
      table->used * (args->up.inter / MOEP_PANEL_N),
      2ull * table->used * args->up.inter * (args->up.hidden / MOEP_STEP_K),
      threads, up_item, &work);
}

struct down_work {
  const struct moep_down_combine_args* args;
  const struct table* table;
  uint32_t live; /* live rows of the group */
};

/* Routed slots of 8 columns: out[row of the group * topk + j]. */
static void down_slots(const struct down_work* work, uint32_t n0,
                       float out[][MOEP_PANEL_N]) {
  const struct moep_down_combine_args* args = work->args;
  const uint64_t slot0 = (uint64_t)args->rows.begin * args->topk;
  for (uint32_t u = 0; u < work->table->used; u++) {
    const int32_t id = work->table->eid[u];
    if (!moep_host_expert_here(args->site, id, args->experts)) continue;
    struct moep_slots slots =
        table_slots(work->table, u, &args->rows, args->topk);
    for (uint32_t i = 0; i < slots.count; i++) {
      slots.x[i] = args->h + slots.slot[i] * moep_padded_k(args->inter);
    }
    float part[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_host_expert_down_panel(&args->site->experts[id], args->hidden,
                                args->inter, n0, &slots, part, &args->tap);
    for (uint32_t i = 0; i < slots.count; i++) {
      memcpy(out[slots.slot[i] - slot0], part[i], sizeof(part[i]));
    }
  }
}

static void down_shared(const struct down_work* work, uint32_t n0,
                        float out[][MOEP_PANEL_N]) {
  const struct moep_down_combine_args* args = work->args;
  const uint16_t* h[MOEP_UNION_ROWS];
  for (uint32_t r = 0; r < work->live; r++) {
    h[r] = args->ffn_h + (uint64_t)(args->rows.begin + r) * args->width;
  }
  moep_host_ffn_down_panel(&args->site->ffn, args->hidden, args->width, n0, h,
                           work->live, out);
  if (args->tap.ffn_down == NULL) return;
  for (uint32_t r = 0; r < work->live; r++) {
    memcpy(args->tap.ffn_down +
               (uint64_t)(args->rows.begin + r) * args->hidden + n0,
           out[r], sizeof(out[r]));
  }
}

static void down_item(const void* context, uint32_t item) {
  const struct down_work* work = context;
  const struct moep_down_combine_args* args = work->args;
  const uint32_t n0 = item * MOEP_PANEL_N;
  float routed[MOEP_UNION_ENTRIES][MOEP_PANEL_N];
  float shared[MOEP_UNION_ROWS][MOEP_PANEL_N];
  down_slots(work, n0, routed);
  if (args->width != 0) down_shared(work, n0, shared);
  for (uint32_t r = 0; r < work->live; r++) {
    const uint64_t row = args->rows.begin + r;
    const int32_t* ids = args->ids + row * args->topk;
    const float* weights = args->weights + row * args->topk;
    for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
      float sum = 0.0f;
      for (uint32_t j = 0; j < args->topk; j++) {
        if (!moep_host_expert_here(args->site, ids[j], args->experts)) continue;
        /* down_slots has set the slots of every expert that is here. */
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        sum = moep_fma(weights[j], routed[r * args->topk + j][i], sum);
      }
      if (args->width != 0) sum = sum + shared[r][i];
      moep_host_store_y(&args->y, row, n0 + i, sum);
    }
  }
}

static void run_down(const struct moep_down_combine_args* args,
                     const struct table* table, uint32_t threads) {
  const uint32_t live = moep_live_rows(args->rows.live_rows, args->rows.total);
  if (live <= args->rows.begin) return;
  const uint32_t rest = live - args->rows.begin;
  const struct down_work work = {
      .args = args,
      .table = table,
      .live = rest < args->rows.count ? rest : args->rows.count,
  };
  moep_parallel(
      args->hidden / MOEP_PANEL_N,
      (uint64_t)args->hidden * (table->used * (args->inter / MOEP_STEP_K) +
                                args->rows.count * (args->width / MOEP_STEP_K)),
      threads, down_item, &work);
}

cudaError_t moep_route_up_nvfp4_host(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  (void)stream;
  struct table table;
  run_up(&args->route_up, &table, launch->threads);
  return cudaSuccess;
}

cudaError_t moep_union_up_nvfp4_host(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  (void)stream;
  struct table table;
  run_up(&args->union_up, &table, launch->threads);
  table_store(&table, &args->union_up.table);
  return cudaSuccess;
}

cudaError_t moep_down_combine_nvfp4_host(const union moep_args* args,
                                         const struct moep_launch* launch,
                                         cudaStream_t stream) {
  (void)stream;
  const struct moep_down_combine_args* down = &args->down_combine;
  struct table table;
  table_build(down->ids, &down->rows, down->topk, down->experts, &table);
  run_down(down, &table, launch->threads);
  return cudaSuccess;
}

cudaError_t moep_union_down_nvfp4_host(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  (void)stream;
  struct table table;
  table_load(&args->union_down.table, &table);
  run_down(&args->union_down, &table, launch->threads);
  return cudaSuccess;
}
