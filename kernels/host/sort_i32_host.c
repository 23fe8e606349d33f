/* sort_count, sort_scan, sort_scatter: a stable counting sort of the slots by
 * expert. Unfilled slots have no position. */

#include "kernels/host/parallel.h"
#include "kernels/host/route_f32_host.h"
#include "kernels/kernels.h"

static uint32_t tile_count(const struct moep_sort_args* args) {
  return moep_ceil_div(args->slots, MOEP_SORT_TILE);
}

static uint32_t tile_end(const struct moep_sort_args* args, uint32_t tile) {
  const uint32_t end = (tile + 1) * MOEP_SORT_TILE;
  return end < args->slots ? end : args->slots;
}

static void count_tile(const void* context, uint32_t tile) {
  const struct moep_sort_args* args = context;
  uint32_t* counts = args->counts + (uint64_t)tile * args->experts;
  memset(counts, 0, args->experts * sizeof(*counts));
  for (uint32_t s = tile * MOEP_SORT_TILE; s < tile_end(args, tile); s++) {
    if (args->ids[s] >= 0) counts[args->ids[s]]++;
  }
}

/* Uses the tile's counts as next positions: they hold nothing afterwards. */
static void scatter_tile(const void* context, uint32_t tile) {
  const struct moep_sort_args* args = context;
  uint32_t* next = args->counts + (uint64_t)tile * args->experts;
  for (uint32_t s = tile * MOEP_SORT_TILE; s < tile_end(args, tile); s++) {
    args->token_to_perm[s] = -1;
    if (args->ids[s] < 0) continue;
    const uint32_t position = next[args->ids[s]]++;
    args->token_to_perm[s] = (int32_t)position;
    args->sorted_slots[position] = (int32_t)s;
  }
}

cudaError_t moep_sort_count_i32_host(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  (void)stream;
  moep_parallel(tile_count(&args->sort_count), 0, launch->threads, count_tile,
                &args->sort_count);
  return cudaSuccess;
}

cudaError_t moep_sort_scan_i32_host(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  (void)launch, (void)stream;
  const struct moep_sort_args* scan = &args->sort_scan;
  uint32_t position = 0;
  for (uint32_t e = 0; e < scan->experts; e++) {
    scan->expert_offsets[e] = position;
    for (uint32_t tile = 0; tile < tile_count(scan); tile++) {
      uint32_t* count = scan->counts + (uint64_t)tile * scan->experts + e;
      const uint32_t here = *count;
      *count = position;
      position += here;
    }
  }
  scan->expert_offsets[scan->experts] = position;
  moep_host_trace_advance(scan->trace_cursor, &scan->rows);
  return cudaSuccess;
}

cudaError_t moep_sort_scatter_i32_host(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  (void)stream;
  moep_parallel(tile_count(&args->sort_scatter), 0, launch->threads,
                scatter_tile, &args->sort_scatter);
  return cudaSuccess;
}
