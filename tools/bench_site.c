#include "tools/bench_site.h"

#include <math.h>
#include <stdlib.h>

#include "tools/bench_fill.h"

#define TRY(call)                               \
  do {                                          \
    const enum tool_status status_of = (call);  \
    if (status_of != tool_ok) return status_of; \
  } while (0)

enum { PROJECTIONS = 3, ALIGNMENT = TOOL_BLOCK_ALIGNMENT };

/* Where the next piece goes. Without memory, pieces are only counted. */
struct cursor {
  const struct tool_memory* memory; /* NULL: count */
  struct tool_error* error;
  char* at;
  size_t used;
  uint64_t word; /* of the first piece: each copy has its own */
};

/* Host arrays of one copy's addresses, [2 * PROJECTIONS, E] and
 * [PROJECTIONS, E]. */
struct addresses {
  const void** experts;
  float* scales;
};

static enum tool_status place(struct cursor* cursor, size_t bytes,
                              enum tool_words kind, const void** address_out) {
  char* to = cursor->at == NULL ? NULL : cursor->at + cursor->used;
  *address_out = to;
  cursor->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (cursor->memory == NULL) return tool_ok;
  const uint64_t word = cursor->word + cursor->used / sizeof(uint32_t);
  return tool_bench_fill(cursor->memory, to, bytes, kind, word, cursor->error);
}

static enum tool_status place_ffn(struct cursor* cursor, uint32_t width,
                                  uint32_t hidden, struct moeplan_ffn* ffn) {
  const size_t bytes = (size_t)width * hidden * 2;
  TRY(place(cursor, bytes, tool_words_bf16_weight, &ffn->gate));
  TRY(place(cursor, bytes, tool_words_bf16_weight, &ffn->up));
  return place(cursor, bytes, tool_words_bf16_weight, &ffn->down);
}

/* Weights of rms 3 / (3 sqrt(K)): a projection keeps the size of its input. */
static enum tool_status place_experts(struct cursor* cursor,
                                      const struct moeplan_config* config,
                                      const struct addresses* addresses,
                                      struct moeplan_site* site) {
  struct moeplan_projection* const projections[PROJECTIONS] = {
      &site->gate, &site->up, &site->down};
  const size_t experts = config->n_routed_experts;
  const size_t weights =
      (size_t)config->hidden_size * config->moe_intermediate_size;
  for (size_t e = 0; e < experts; e++) {
    for (size_t i = 0; i < PROJECTIONS; i++) {
      const void* weight = NULL;
      const void* scale = NULL;
      TRY(place(cursor, weights / 2, tool_words_e2m1, &weight));
      TRY(place(cursor, weights / 16, tool_words_e4m3, &scale));
      if (addresses == NULL) continue;
      const double k =
          i == 2 ? config->moe_intermediate_size : config->hidden_size;
      addresses->experts[2 * i * experts + e] = weight;
      addresses->experts[(2 * i + 1) * experts + e] = scale;
      addresses->scales[i * experts + e] = (float)(1.0 / (3.0 * sqrt(k)));
    }
  }
  for (size_t i = 0; i < PROJECTIONS && addresses != NULL; i++) {
    *projections[i] =
        (struct moeplan_projection){&addresses->experts[2 * i * experts],
                                    &addresses->experts[(2 * i + 1) * experts],
                                    &addresses->scales[i * experts]};
  }
  return tool_ok;
}

static enum tool_status place_copy(struct cursor* cursor,
                                   const struct moeplan_config* config,
                                   const struct addresses* addresses,
                                   struct moeplan_site* site) {
  const uint32_t hidden = config->hidden_size;
  if (config->kind == moeplan_site_dense) {
    return place_ffn(cursor, config->dense_local_intermediate, hidden,
                     &site->dense);
  }
  TRY(place(cursor, (size_t)config->n_routed_experts * hidden * 2,
            tool_words_bf16_weight, &site->router));
  if (config->shared_local_intermediate != 0) {
    TRY(place_ffn(cursor, config->shared_local_intermediate, hidden,
                  &site->shared));
  }
  return place_experts(cursor, config, addresses, site);
}

size_t tool_bench_site_bytes(const struct moeplan_config* config) {
  struct cursor cursor = {.memory = NULL};
  struct moeplan_site site = MOEPLAN_SITE_INIT;
  place_copy(&cursor, config, NULL, &site);
  return cursor.used;
}

static enum tool_status write_blob(const struct tool_session* session,
                                   const struct moeplan_site* site,
                                   const struct tool_memory* memory, void* to,
                                   size_t bytes) {
  void* blob = malloc(bytes);
  if (blob == NULL) {
    return tool_fail(session->error,
                     "cannot allocate %zu bytes: out of host memory", bytes);
  }
  enum tool_status status = tool_session_check(
      session, "write the site",
      moeplan_site_write(session->planner, site, blob, bytes));
  if (status == tool_ok) {
    status = tool_memory_upload(memory, to, blob, bytes, session->error);
  }
  free(blob);
  return status;
}

static enum tool_status place_all(const struct tool_session* session,
                                  const struct moeplan_config* config,
                                  struct tool_memory* memory,
                                  const struct addresses* addresses,
                                  struct tool_bench_site* out) {
  size_t blob_bytes = 0;
  void* arena = NULL;
  void* blobs = NULL;
  TRY(tool_session_check(session, "size the site",
                         moeplan_site_size(session->planner, &blob_bytes)));
  const size_t pitch = (blob_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  TRY(tool_memory_allocate(memory, out->copies * out->bytes, &arena,
                           session->error));
  TRY(tool_memory_allocate(memory, out->copies * pitch, &blobs,
                           session->error));
  for (uint32_t i = 0; i < out->copies; i++) {
    struct cursor cursor = {
        .memory = memory,
        .error = session->error,
        .at = (char*)arena + i * out->bytes,
        .word = (uint64_t)i * (out->bytes / sizeof(uint32_t)),
    };
    struct moeplan_site site = MOEPLAN_SITE_INIT;
    TRY(place_copy(&cursor, config, addresses, &site));
    out->blobs[i] = (char*)blobs + i * pitch;
    TRY(write_blob(session, &site, memory, out->blobs[i], blob_bytes));
  }
  return tool_memory_wait(memory, session->error);
}

enum tool_status tool_bench_site_place(const struct tool_session* session,
                                       const struct moeplan_config* config,
                                       struct tool_memory* memory,
                                       uint32_t copies,
                                       struct tool_bench_site* site_out) {
  const size_t experts = config->n_routed_experts;
  struct tool_bench_site out = {.bytes = tool_bench_site_bytes(config),
                                .copies = copies};
  const struct addresses addresses = {
      calloc((size_t)2 * PROJECTIONS * experts + 1, sizeof(*addresses.experts)),
      calloc(PROJECTIONS * experts + 1, sizeof(*addresses.scales))};
  enum tool_status status =
      addresses.experts == NULL || addresses.scales == NULL
          ? tool_fail(session->error,
                      "cannot place %zu experts: out of host memory", experts)
          : place_all(session, config, memory, &addresses, &out);
  free(addresses.experts);
  free(addresses.scales);
  if (status == tool_ok) *site_out = out;
  return status;
}
