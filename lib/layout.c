#include "lib/layout.h"

#include "kernels/union.h"

enum {
  bytes_f32 = 4,
  bytes_i32 = 4,
  bytes_u32 = 4,
  bytes_bf16 = 2,
  bytes_u8 = 1
};

static size_t aligned(size_t bytes) {
  const size_t mask = MOEPLAN_WORKSPACE_ALIGNMENT - 1;
  return (bytes + mask) & ~mask;
}

void moep_layout_compute(const struct moep_dims* dims, uint32_t rows,
                         enum moeplan_numerics numerics,
                         struct moep_layout* layout_out) {
  const uint64_t R = rows, H = dims->hidden, W = dims->width;
  const uint64_t E = dims->experts, k = dims->topk, S = R * k;
  const uint64_t Hp = moep_padded_k(dims->hidden);
  const uint64_t Ip = moep_padded_k(dims->inter);
  const uint64_t T = (S + MOEP_SORT_TILE - 1) / MOEP_SORT_TILE;
  const uint64_t wide =
      numerics == moeplan_numerics_tiered && rows > MOEP_UNION_ROWS ? 1 : 0;
  const uint64_t routed = dims->kind == moeplan_site_routed ? 1 : 0;
  struct moep_layout layout = {.buffers = {
#define BUFFER(id, element, outer, inner) \
  [moep_buffer_##id] = {.name = #id, .type = #element, .shape = {outer, inner}},
                                   MOEP_BUFFER_MAP(BUFFER)
#undef BUFFER
                               }};
  static const size_t element_bytes[MOEP_BUFFER_COUNT] = {
#define ELEMENT_BYTES(id, element, outer, inner) bytes_##element,
      MOEP_BUFFER_MAP(ELEMENT_BYTES)
#undef ELEMENT_BYTES
  };
  for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
    struct moep_extent* extent = &layout.buffers[i];
    extent->offset = layout.total_bytes;
    extent->bytes =
        (size_t)(extent->shape[0] * extent->shape[1]) * element_bytes[i];
    layout.total_bytes += aligned(extent->bytes);
  }
  *layout_out = layout;
}
