/* logits, ffn_up, ffn_down: the bf16 projections in natural k order. */

#include "kernels/host/ffn_bf16_host.h"

#include "kernels/host/panel.h"
#include "kernels/host/parallel.h"
#include "kernels/kernels.h"

/* Live rows of the node, 16 at a time. */
struct batch {
  uint32_t rows;
  const uint16_t* x[MOEP_PANEL_ROWS];
};

/* The batch from row `first` on; rows == 0 at the end. */
static struct batch batch_at(const struct moep_rows* rows, const uint16_t* x,
                             uint64_t stride, uint32_t first) {
  const uint32_t end = moep_rows_end(rows);
  struct batch batch = {.rows = 0};
  for (uint32_t r = first; r < end && batch.rows < MOEP_PANEL_ROWS; r++) {
    batch.x[batch.rows++] = x + r * stride;
  }
  return batch;
}

static void logits_panel(const void* context, uint32_t item) {
  const struct moep_logits_args* args = context;
  const uint32_t n0 = item * MOEP_PANEL_N;
  const struct moep_operand router =
      moep_operand_bf16(args->site->router, args->experts, args->hidden,
                        args->hidden, MOEP_ROUTER_SEGMENT_K);
  uint32_t first = args->rows.begin;
  struct batch batch;
  while (batch = batch_at(&args->rows, args->x.data, args->x.stride, first),
         batch.rows > 0) {
    float totals[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_panel(&router, n0, batch.x, batch.rows, moep_order_natural, totals);
    for (uint32_t r = 0; r < batch.rows; r++) {
      const uint64_t row = (uint64_t)(first + r) * args->experts;
      for (uint32_t i = 0; i < MOEP_PANEL_N && n0 + i < args->experts; i++) {
        args->logits[row + n0 + i] = totals[r][i];
        if (args->tap.logits != NULL) {
          args->tap.logits[row + n0 + i] = totals[r][i];
        }
      }
    }
    first += batch.rows;
  }
}

static void ffn_up_panel(const void* context, uint32_t item) {
  const struct moep_ffn_up_args* args = context;
  const uint32_t n0 = item * MOEP_PANEL_N, width = args->width;
  const struct moep_ffn* ffn = &args->site->ffn;
  const struct moep_operand gate = moep_operand_bf16(
      ffn->gate, width, args->hidden, args->hidden, MOEP_SEGMENT_K);
  const struct moep_operand up = moep_operand_bf16(
      ffn->up, width, args->hidden, args->hidden, MOEP_SEGMENT_K);
  uint32_t first = args->rows.begin;
  struct batch batch;
  while (batch = batch_at(&args->rows, args->x.data, args->x.stride, first),
         batch.rows > 0) {
    float g[MOEP_PANEL_ROWS][MOEP_PANEL_N], u[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_panel(&gate, n0, batch.x, batch.rows, moep_order_natural, g);
    moep_panel(&up, n0, batch.x, batch.rows, moep_order_natural, u);
    for (uint32_t r = 0; r < batch.rows; r++) {
      const uint64_t row = first + r;
      for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
        args->h[row * width + n0 + i] = moep_bf16_from_float(moep_swiglu(
            moep_bf16_round(g[r][i]), moep_bf16_round(u[r][i]), args->limit));
        if (args->tap.ffn_up == NULL) continue;
        args->tap.ffn_up[row * 2 * width + n0 + i] = g[r][i];
        args->tap.ffn_up[(row * 2 + 1) * width + n0 + i] = u[r][i];
      }
    }
    first += batch.rows;
  }
}

void moep_host_store_y(const struct moep_y* y, uint64_t row, uint32_t column,
                       float value) {
  const uint64_t at = row * y->stride + column;
  if (y->is_f32 != 0) {
    ((float*)y->data)[at] = moep_f32_stored(value);
  } else {
    ((uint16_t*)y->data)[at] = moep_bf16_from_float(value);
  }
}

void moep_host_ffn_down_panel(const struct moep_ffn* ffn, uint32_t hidden,
                              uint32_t width, uint32_t n0,
                              const uint16_t* const* h, uint32_t rows,
                              float totals[][MOEP_PANEL_N]) {
  const struct moep_operand down = moep_operand_bf16(
      ffn->down, hidden, width, ffn->down_pitch, MOEP_SEGMENT_K);
  moep_panel(&down, n0, h, rows, moep_order_natural, totals);
}

static void ffn_down_panel(const void* context, uint32_t item) {
  const struct moep_ffn_down_args* args = context;
  const uint32_t n0 = item * MOEP_PANEL_N;
  uint32_t first = args->rows.begin;
  struct batch batch;
  while (batch = batch_at(&args->rows, args->h, args->width, first),
         batch.rows > 0) {
    float totals[MOEP_PANEL_ROWS][MOEP_PANEL_N];
    moep_host_ffn_down_panel(&args->site->ffn, args->hidden, args->width, n0,
                             batch.x, batch.rows, totals);
    for (uint32_t r = 0; r < batch.rows; r++) {
      for (uint32_t i = 0; i < MOEP_PANEL_N; i++) {
        moep_host_store_y(&args->out, first + r, n0 + i, totals[r][i]);
        if (args->tap.ffn_down == NULL) continue;
        args->tap.ffn_down[(uint64_t)(first + r) * args->hidden + n0 + i] =
            totals[r][i];
      }
    }
    first += batch.rows;
  }
}

static uint64_t steps(uint32_t rows, uint32_t n, uint32_t k) {
  return (uint64_t)rows * n * (k / MOEP_STEP_K);
}

void moep_host_logits(const struct moep_logits_args* args, uint32_t threads) {
  if (args->external_ids != NULL) return;
  moep_parallel(moep_ceil_div(args->experts, MOEP_PANEL_N),
                steps(args->rows.count, args->experts, args->hidden), threads,
                logits_panel, args);
}

void moep_host_ffn_up(const struct moep_ffn_up_args* args, uint32_t threads) {
  moep_parallel(args->width / MOEP_PANEL_N,
                2 * steps(args->rows.count, args->width, args->hidden), threads,
                ffn_up_panel, args);
}

cudaError_t moep_logits_bf16_host(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  (void)stream;
  moep_host_logits(&args->logits, launch->threads);
  return cudaSuccess;
}

cudaError_t moep_ffn_up_bf16_host(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  (void)stream;
  moep_host_ffn_up(&args->ffn_up, launch->threads);
  return cudaSuccess;
}

cudaError_t moep_ffn_down_bf16_host(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  (void)stream;
  const struct moep_ffn_down_args* down = &args->ffn_down;
  moep_parallel(down->hidden / MOEP_PANEL_N,
                steps(down->rows.count, down->hidden, down->width),
                launch->threads, ffn_down_panel, down);
  return cudaSuccess;
}
