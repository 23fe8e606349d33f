/* permute_x, grouped_up, grouped_down, combine: the prefill recipe's routed
 * half. Slots lie in sorted order, an expert's side by side. */

#include "kernels/host/expert_nvfp4_host.h"
#include "kernels/host/ffn_bf16_host.h"
#include "kernels/host/parallel.h"
#include "kernels/kernels.h"

static void permute_row(const void* context, uint32_t item) {
  const struct moep_permute_x_args* args = context;
  const uint32_t row = args->rows.begin + item;
  if (row >= moep_live_rows(args->rows.live_rows, args->rows.total)) return;
  const uint16_t* x = args->x.data + row * args->x.stride;
  const uint32_t padded = moep_padded_k(args->hidden);
  uint16_t* xp = args->xp + (uint64_t)row * padded;
  for (uint32_t p = 0; p < padded; p++) {
    const uint32_t k = moep_k_from_p(p);
    xp[p] = k < args->hidden ? x[k] : 0;
  }
}

/* The batch of an expert's positions that starts at `position`: up to the end
 * of its tile, at most MOEP_PANEL_ROWS. Inputs are filled in by the caller. */
static struct moep_slots batch_at(const struct moep_grouped_args* args,
                                  uint32_t expert, uint32_t position) {
  const uint32_t begin = args->expert_offsets[expert];
  const uint32_t end = args->expert_offsets[expert + 1];
  const uint32_t tile =
      begin + ((position - begin) / args->tile + 1) * args->tile;
  const uint32_t stop = tile < end ? tile : end;
  struct moep_slots slots = {.count = 0};
  while (slots.count < MOEP_PANEL_ROWS && position + slots.count < stop) {
    slots.slot[slots.count] =
        (uint64_t)args->sorted_slots[position + slots.count];
    slots.count++;
  }
  return slots;
}

static void up_item(const void* context, uint32_t item) {
  const struct moep_grouped_args* args = context;
  const uint32_t panels = args->inter / MOEP_PANEL_N;
  const uint32_t expert = args->expert_begin + item / panels;
  const uint32_t end = args->expert_offsets[expert + 1];
  if (args->site->experts[expert].gate.weight == NULL) return;
  uint32_t position = args->expert_offsets[expert];
  while (position < end) {
    struct moep_slots slots = batch_at(args, expert, position);
    for (uint32_t i = 0; i < slots.count; i++) {
      slots.x[i] =
          args->xp + slots.slot[i] / args->topk * moep_padded_k(args->hidden);
      slots.h[i] =
          args->h + (uint64_t)(position + i) * moep_padded_k(args->inter);
    }
    moep_host_expert_up_panel(
        &args->site->experts[expert], args->hidden, args->inter, args->limit,
        item % panels * MOEP_PANEL_N, &slots, moep_order_p, &args->tap);
    position += slots.count;
  }
}

static void down_item(const void* context, uint32_t item) {
  const struct moep_grouped_args* args = context;
  const uint32_t panels = args->hidden / MOEP_PANEL_N;
  const uint32_t expert = args->expert_begin + item / panels;
  const uint32_t n0 = item % panels * MOEP_PANEL_N;
  const uint32_t end = args->expert_offsets[expert + 1];
  if (args->site->experts[expert].gate.weight == NULL) return;
  uint32_t position = args->expert_offsets[expert];
  while (position < end) {
    struct moep_slots slots = batch_at(args, expert, position);
    for (uint32_t i = 0; i < slots.count; i++) {
      slots.x[i] =
          args->h + (uint64_t)(position + i) * moep_padded_k(args->inter);
    }
    float out[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_host_expert_down_panel(&args->site->experts[expert], args->hidden,
                                args->inter, n0, &slots, out, &args->tap);
    for (uint32_t i = 0; i < slots.count; i++) {
      uint16_t* row = args->slot_out + (uint64_t)(position + i) * args->hidden;
      for (uint32_t c = 0; c < MOEP_PANEL_N; c++) {
        row[n0 + c] = moep_bf16_from_float(out[i][c]);
      }
    }
    position += slots.count;
  }
}

static void combine_row(const void* context, uint32_t item) {
  const struct moep_combine_args* args = context;
  const uint64_t row = args->rows.begin + item;
  if (row >= moep_live_rows(args->rows.live_rows, args->rows.total)) return;
  const uint64_t slot0 = row * args->topk;
  for (uint32_t n = 0; n < args->hidden; n++) {
    float sum = 0.0f;
    for (uint32_t j = 0; j < args->topk; j++) {
      if (!moep_host_expert_here(args->site, args->ids[slot0 + j],
                                 args->experts)) {
        continue;
      }
      const uint64_t position = (uint64_t)args->token_to_perm[slot0 + j];
      sum = moep_fma(
          args->weights[slot0 + j],
          moep_bf16_to_float(args->slot_out[position * args->hidden + n]), sum);
    }
    if (args->ffn_out != NULL)
      sum = sum + args->ffn_out[row * args->hidden + n];
    moep_host_store_y(&args->y, row, n, sum);
  }
}

/* Steps of one projection, for the choice of threads: every slot counted. */
static uint64_t grouped_steps(const struct moep_grouped_args* args) {
  const uint32_t first = args->expert_offsets[args->expert_begin];
  const uint32_t last =
      args->expert_offsets[args->expert_begin + args->expert_count];
  return (uint64_t)(last - first) * args->hidden * (args->inter / MOEP_STEP_K);
}

cudaError_t moep_permute_x_bf16_host(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  (void)stream;
  moep_parallel(args->permute_x.rows.count, 0, launch->threads, permute_row,
                &args->permute_x);
  return cudaSuccess;
}

cudaError_t moep_grouped_up_nvfp4_host(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  (void)stream;
  const struct moep_grouped_args* up = &args->grouped_up;
  moep_parallel(up->expert_count * (up->inter / MOEP_PANEL_N),
                2 * grouped_steps(up), launch->threads, up_item, up);
  return cudaSuccess;
}

cudaError_t moep_grouped_down_nvfp4_host(const union moep_args* args,
                                         const struct moep_launch* launch,
                                         cudaStream_t stream) {
  (void)stream;
  const struct moep_grouped_args* down = &args->grouped_down;
  moep_parallel(down->expert_count * (down->hidden / MOEP_PANEL_N),
                grouped_steps(down), launch->threads, down_item, down);
  return cudaSuccess;
}

cudaError_t moep_combine_bf16_host(const union moep_args* args,
                                   const struct moep_launch* launch,
                                   cudaStream_t stream) {
  (void)stream;
  moep_parallel(args->combine.rows.count,
                (uint64_t)args->combine.rows.count * args->combine.hidden,
                launch->threads, combine_row, &args->combine);
  return cudaSuccess;
}
