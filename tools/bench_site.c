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
  const struct tool_rank* rank;
  struct tool_error* error;
  char* at;
  size_t used;   /* bytes here */
  size_t passed; /* bytes of the whole site */
  uint64_t word; /* of the first piece: each copy has its own */
};

/* Host arrays of one copy's addresses, [2 * PROJECTIONS, E] and
 * [PROJECTIONS, E]. */
struct addresses {
  const void** experts;
  float* scales;
};

/* Bytes begin .. end - 1 of a piece of the whole site. */
struct part {
  size_t bytes, begin, end;
};

static struct part all_of(size_t bytes) {
  return (struct part){bytes, 0, bytes};
}

static size_t round_up(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum tool_status place(struct cursor* cursor, struct part part,
                              enum tool_words kind, const void** address_out) {
  const size_t bytes = part.end - part.begin;
  char* to = cursor->at == NULL ? NULL : cursor->at + cursor->used;
  *address_out = bytes == 0 ? NULL : to;
  cursor->used += round_up(bytes);
  cursor->passed += round_up(part.bytes);
  if (cursor->memory == NULL || bytes == 0) return tool_ok;
  const uint64_t word =
      cursor->word + (cursor->passed + part.begin) / sizeof(uint32_t);
  return tool_bench_fill(cursor->memory, to, bytes, kind, word, cursor->error);
}

/* Rows of gate and up, columns of down: a rank with any has the whole of down. */
static enum tool_status place_ffn(struct cursor* cursor, uint32_t width,
                                  struct tool_range columns, uint32_t hidden,
                                  struct moeplan_ffn* ffn) {
  const size_t row = (size_t)hidden * 2, bytes = width * row;
  const struct part shard = {bytes, columns.begin * row, columns.end * row};
  const void* down = NULL;
  TRY(place(cursor, shard, tool_words_bf16_weight, &ffn->gate));
  TRY(place(cursor, shard, tool_words_bf16_weight, &ffn->up));
  TRY(place(
      cursor,
      columns.begin == columns.end ? (struct part){bytes, 0, 0} : all_of(bytes),
      tool_words_bf16_weight, &down));
  if (down == NULL) return tool_ok;
  ffn->down = (const uint16_t*)down + columns.begin;
  ffn->down_pitch = width;
  return tool_ok;
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
  const struct tool_range here =
      tool_rank_experts(cursor->rank, config->n_routed_experts);
  for (size_t e = 0; e < experts; e++) {
    const size_t share = e >= here.begin && e < here.end ? 1 : 0;
    for (size_t i = 0; i < PROJECTIONS; i++) {
      const struct part codes = {weights / 2, 0, share * (weights / 2)};
      const struct part blocks = {weights / 16, 0, share * (weights / 16)};
      const void* weight = NULL;
      const void* scale = NULL;
      TRY(place(cursor, codes, tool_words_e2m1, &weight));
      TRY(place(cursor, blocks, tool_words_e4m3, &scale));
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
    const uint32_t width = config->dense_local_intermediate;
    return place_ffn(cursor, width, tool_rank_dense(cursor->rank, width),
                     hidden, &site->dense);
  }
  TRY(place(cursor, all_of((size_t)config->n_routed_experts * hidden * 2),
            tool_words_bf16_weight, &site->router));
  const uint32_t width = config->shared_local_intermediate;
  if (width != 0) {
    TRY(place_ffn(cursor, width, tool_rank_shared(cursor->rank, width), hidden,
                  &site->shared));
  }
  return place_experts(cursor, config, addresses, site);
}

/* Without memory: the bytes here and of the whole site. */
static struct cursor count(const struct moeplan_config* whole,
                           const struct tool_rank* rank) {
  struct cursor cursor = {.rank = rank};
  struct moeplan_site site = MOEPLAN_SITE_INIT;
  place_copy(&cursor, whole, NULL, &site);
  return cursor;
}

size_t tool_bench_site_bytes(const struct moeplan_config* whole,
                             const struct tool_rank* rank) {
  return count(whole, rank).used;
}

static enum tool_status write_blob(const struct tool_session* session,
                                   const struct moeplan_site* site,
                                   const struct tool_memory* memory, void* to,
                                   size_t bytes, void** host_out) {
  void* blob = malloc(bytes);
  if (blob == NULL) {
    return tool_fail(session->error,
                     "cannot allocate %zu bytes: out of host memory", bytes);
  }
  *host_out = blob;
  TRY(tool_session_check(
      session, "write the site",
      moeplan_site_write(session->planner, site, blob, bytes)));
  return tool_memory_upload(memory, to, blob, bytes, session->error);
}

static enum tool_status place_all(const struct tool_session* session,
                                  const struct moeplan_config* whole,
                                  const struct tool_rank* rank,
                                  struct tool_memory* memory,
                                  const struct addresses* addresses,
                                  struct tool_bench_site* out) {
  size_t blob_bytes = 0;
  void* arena = NULL;
  void* blobs = NULL;
  TRY(tool_session_check(session, "size the site",
                         moeplan_site_size(session->planner, &blob_bytes)));
  const size_t pitch = round_up(blob_bytes);
  const size_t passed = count(whole, rank).passed;
  TRY(tool_memory_allocate(memory, out->copies * out->bytes, &arena,
                           session->error));
  TRY(tool_memory_allocate(memory, out->copies * pitch, &blobs,
                           session->error));
  for (uint32_t i = 0; i < out->copies; i++) {
    struct cursor cursor = {
        .memory = memory,
        .rank = rank,
        .error = session->error,
        .at = (char*)arena + i * out->bytes,
        .word = (uint64_t)i * (passed / sizeof(uint32_t)),
    };
    struct moeplan_site site = MOEPLAN_SITE_INIT;
    TRY(place_copy(&cursor, whole, addresses, &site));
    out->blobs[i] = (char*)blobs + i * pitch;
    TRY(write_blob(session, &site, memory, out->blobs[i], blob_bytes,
                   &out->host_blobs[i]));
  }
  return tool_memory_wait(memory, session->error);
}

enum tool_status tool_bench_site_place(const struct tool_session* session,
                                       const struct moeplan_config* whole,
                                       const struct tool_rank* rank,
                                       struct tool_memory* memory,
                                       uint32_t copies,
                                       struct tool_bench_site* site_out) {
  const size_t experts = whole->n_routed_experts;
  struct tool_bench_site out = {.bytes = tool_bench_site_bytes(whole, rank),
                                .copies = copies};
  const struct addresses addresses = {
      calloc((size_t)2 * PROJECTIONS * experts + 1, sizeof(*addresses.experts)),
      calloc(PROJECTIONS * experts + 1, sizeof(*addresses.scales))};
  enum tool_status status =
      addresses.experts == NULL || addresses.scales == NULL
          ? tool_fail(session->error,
                      "cannot place %zu experts: out of host memory", experts)
          : place_all(session, whole, rank, memory, &addresses, &out);
  free(addresses.experts);
  free(addresses.scales);
  if (status == tool_ok) {
    *site_out = out;
  } else {
    tool_bench_site_free(&out);
  }
  return status;
}

void tool_bench_site_free(struct tool_bench_site* site) {
  for (uint32_t i = 0; i < site->copies; i++) {
    free(site->host_blobs[i]);
    site->host_blobs[i] = NULL;
  }
}
