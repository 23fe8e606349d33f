#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/scalar.h"

/* ---- random numbers ------------------------------------------------------ */

/* SplitMix64. */
uint32_t harness_next(struct harness_random* random) {
  uint64_t z = random->state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

uint32_t harness_below(struct harness_random* random, uint32_t n) {
  return (uint32_t)(((uint64_t)harness_next(random) * n) >> 32);
}

uint16_t harness_bf16(struct harness_random* random, int spread) {
  const uint32_t bits = harness_next(random);
  const uint32_t exponent = (uint32_t)(127 - spread) +
                            harness_below(random, (uint32_t)(2 * spread + 1));
  return (uint16_t)((bits & 0x807F) | exponent << 7);
}

/* ---- memory -------------------------------------------------------------- */

enum { ALIGNMENT = 256 };

static void die(const struct harness* h, const char* what) {
  fprintf(stderr, "harness: %s failed\n%s", what, h->log);
  abort();
}

static void* allocate_aligned(size_t bytes) {
  const size_t rounded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
  void* memory = aligned_alloc(ALIGNMENT, rounded);
  if (memory == NULL) abort();
  memset(memory, 0, rounded);
  return memory;
}

/* Each block opens with the address of the one before. */
void* harness_allocate(struct harness* h, size_t bytes) {
  char* block = allocate_aligned(bytes + ALIGNMENT);
  memcpy(block, &h->memory, sizeof(h->memory));
  h->memory = block;
  return block + ALIGNMENT;
}

/* ---- sites --------------------------------------------------------------- */

struct moeplan_config harness_config(uint32_t hidden, uint32_t inter,
                                     uint32_t experts, uint32_t topk,
                                     uint32_t width) {
  struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.hidden_size = hidden;
  config.moe_intermediate_size = inter;
  config.n_routed_experts = experts;
  config.num_experts_per_tok = topk;
  config.shared_local_intermediate = width;
  config.routed_scaling_factor = 2.5f;
  config.swiglu_limit = 10.0f;
  return config;
}

struct moeplan_config harness_dense_config(uint32_t hidden, uint32_t width) {
  struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.kind = moeplan_site_dense;
  config.hidden_size = hidden;
  config.dense_local_intermediate = width;
  return config;
}

struct harness harness_of(struct moeplan_config config, uint64_t seed,
                          uint32_t x_rows) {
  struct harness h = {
      .config = config, .seed = seed, .spread = 2, .x_rows = x_rows};
  return h;
}

static void log_line(void* context, enum moeplan_log_level level,
                     const char* text) {
  struct harness* h = context;
  static const char* const names[] = {"error: ", "warning: ", "info: "};
  const size_t used = strlen(h->log);
  snprintf(h->log + used, sizeof(h->log) - used, "%s%s\n", names[level], text);
}

static uint16_t* random_bf16(struct harness* h, struct harness_random* random,
                             size_t count, int spread) {
  uint16_t* values = harness_allocate(h, count * sizeof(*values));
  for (size_t i = 0; i < count; i++) values[i] = harness_bf16(random, spread);
  return values;
}

/* One projection of every expert that is here; each with its own scale. */
static void random_projection(struct harness* h, struct harness_random* random,
                              uint32_t n, uint32_t k,
                              struct moeplan_projection* projection) {
  const uint32_t experts = h->config.n_routed_experts;
  const void** weight = harness_allocate(h, experts * sizeof(*weight));
  const void** scale = harness_allocate(h, experts * sizeof(*scale));
  float* scale_2 = harness_allocate(h, experts * sizeof(*scale_2));
  const size_t weight_bytes = (size_t)n * k / 2,
               scale_bytes = (size_t)n * k / 16;
  for (uint32_t e = 0; e < experts; e++) {
    scale_2[e] = 0x1p-9f * (1.0f + (float)harness_below(random, 900) / 100.0f);
    if (h->null_experts != NULL && h->null_experts[e] != 0) continue;
    if (h->distinct_experts != 0 && e >= h->distinct_experts) {
      weight[e] = weight[e % h->distinct_experts];
      scale[e] = scale[e % h->distinct_experts];
      continue;
    }
    uint8_t* bytes = harness_allocate(h, weight_bytes + scale_bytes);
    weight[e] = bytes;
    scale[e] = bytes + weight_bytes;
    for (size_t i = 0; i < weight_bytes; i++) {
      bytes[i] = (uint8_t)harness_next(random);
    }
    for (size_t i = 0; i < scale_bytes; i++) {
      bytes[weight_bytes + i] = (uint8_t)(32 + harness_below(random, 40));
    }
  }
  *projection = (struct moeplan_projection){weight, scale, scale_2};
}

static void random_ffn(struct harness* h, struct harness_random* random,
                       uint32_t width, struct moeplan_ffn* ffn) {
  const size_t count = (size_t)width * h->config.hidden_size;
  /* Small enough that outputs stay in range. */
  uint16_t* parts[3];
  for (int i = 0; i < 3; i++) {
    parts[i] = random_bf16(h, random, count, h->spread);
    for (size_t j = 0; j < count; j++) parts[i][j] -= 5 << 7; /* x 2^-5 */
  }
  *ffn = (struct moeplan_ffn){parts[0], parts[1], parts[2], 0};
}

static void random_routed(struct harness* h, struct harness_random* random) {
  const uint32_t hidden = h->config.hidden_size;
  const uint32_t inter = h->config.moe_intermediate_size;
  const uint32_t experts = h->config.n_routed_experts;
  uint16_t* router =
      random_bf16(h, random, (size_t)experts * hidden, h->spread);
  for (size_t i = 0; i < (size_t)experts * hidden; i++) router[i] -= 7 << 7;
  h->site.router = router;
  if (!h->no_bias) {
    float* bias = harness_allocate(h, experts * sizeof(*bias));
    for (uint32_t e = 0; e < experts; e++) {
      bias[e] = 7.0f + (float)harness_below(random, 1000) * 0x1p-13f;
    }
    h->site.router_bias = bias;
  }
  random_projection(h, random, inter, hidden, &h->site.gate);
  random_projection(h, random, inter, hidden, &h->site.up);
  random_projection(h, random, hidden, inter, &h->site.down);
  if (h->config.shared_local_intermediate != 0) {
    random_ffn(h, random, h->config.shared_local_intermediate, &h->site.shared);
  }
}

static uint32_t local_count(const struct harness* h) {
  uint32_t count = 0;
  for (uint32_t e = 0; e < h->config.n_routed_experts; e++) {
    count += h->null_experts[e] == 0;
  }
  return count;
}

enum moeplan_status harness_write_site(struct harness* h) {
  size_t bytes;
  const enum moeplan_status status = moeplan_site_size(h->planner, &bytes);
  if (status != moeplan_status_success) return status;
  if (h->blob == NULL) h->blob = harness_allocate(h, bytes);
  return moeplan_site_write(h->planner, &h->site, h->blob, bytes);
}

static void open_planner(struct harness* h) {
  const struct moeplan_hooks hooks = {
      .struct_bytes = sizeof(hooks), .context = h, .log = log_line};
  if (moeplan_planner_create(&h->config, "host", &hooks, &h->planner) !=
      moeplan_status_success) {
    die(h, "planner_create");
  }
  if (harness_write_site(h) != moeplan_status_success) die(h, "site_write");
}

void harness_open(struct harness* h) {
  const struct moeplan_site empty = MOEPLAN_SITE_INIT;
  struct harness_random random = {h->seed};
  h->site = empty;
  h->x = random_bf16(h, &random, (size_t)h->x_rows * h->config.hidden_size,
                     h->spread);
  if (h->config.kind == moeplan_site_dense) {
    random_ffn(h, &random, h->config.dense_local_intermediate, &h->site.dense);
  } else {
    random_routed(h, &random);
    if (h->null_experts != NULL) h->config.local_experts = local_count(h);
  }
  open_planner(h);
}

/* ---- ranks --------------------------------------------------------------- */

uint32_t harness_rank_begin(uint32_t n, uint32_t rank, uint32_t ranks) {
  return (uint32_t)((uint64_t)n * rank / ranks);
}

/* Addresses of the experts begin .. end - 1, null elsewhere. */
static struct moeplan_projection projection_of_rank(
    struct harness* h, const struct moeplan_projection* whole, uint32_t begin,
    uint32_t end) {
  const size_t experts = h->config.n_routed_experts;
  const void** weight = harness_allocate(h, experts * sizeof(*weight));
  const void** scale = harness_allocate(h, experts * sizeof(*scale));
  for (uint32_t e = begin; e < end; e++) {
    weight[e] = whole->weight[e];
    scale[e] = whole->weight_scale[e];
  }
  return (struct moeplan_projection){weight, scale, whole->weight_scale_2};
}

/* Columns begin .. end - 1 of an ffn of `width` columns. */
static struct moeplan_ffn ffn_of_rank(const struct moeplan_ffn* whole,
                                      uint32_t hidden, uint32_t width,
                                      uint32_t begin, uint32_t end) {
  if (begin == end) return (struct moeplan_ffn){NULL, NULL, NULL, 0};
  const uint16_t* gate = whole->gate;
  const uint16_t* up = whole->up;
  const uint16_t* down = whole->down;
  return (struct moeplan_ffn){gate + (size_t)begin * hidden,
                              up + (size_t)begin * hidden, down + begin, width};
}

void harness_open_rank(struct harness* h, const struct harness* whole,
                       uint32_t rank, uint32_t ranks) {
  const struct moeplan_config* c = &whole->config;
  const bool dense = c->kind == moeplan_site_dense;
  const uint32_t experts = dense ? 0 : c->n_routed_experts;
  const uint32_t width =
      dense ? c->dense_local_intermediate : c->shared_local_intermediate;
  const uint32_t first = harness_rank_begin(experts, rank, ranks);
  const uint32_t last = harness_rank_begin(experts, rank + 1, ranks);
  const uint32_t begin = 16 * harness_rank_begin(width / 16, rank, ranks);
  const uint32_t end = 16 * harness_rank_begin(width / 16, rank + 1, ranks);
  *h = harness_of(*c, whole->seed, whole->x_rows);
  h->spread = whole->spread;
  h->x = whole->x;
  h->site = whole->site;
  if (dense) {
    h->config.dense_local_intermediate = end - begin;
    h->site.dense =
        ffn_of_rank(&whole->site.dense, c->hidden_size, width, begin, end);
  } else {
    h->config.local_experts = last - first;
    h->config.shared_local_intermediate = end - begin;
    h->site.shared =
        ffn_of_rank(&whole->site.shared, c->hidden_size, width, begin, end);
    h->site.gate = projection_of_rank(h, &whole->site.gate, first, last);
    h->site.up = projection_of_rank(h, &whole->site.up, first, last);
    h->site.down = projection_of_rank(h, &whole->site.down, first, last);
  }
  open_planner(h);
}

/* The arrays of addresses are the ranks' own memory. */
static void move_projection(struct moeplan_projection* from,
                            struct moeplan_projection* to, uint32_t e) {
  const void** const ends[2][2] = {
      {(const void**)from->weight, (const void**)from->weight_scale},
      {(const void**)to->weight, (const void**)to->weight_scale}};
  for (int i = 0; i < 2; i++) {
    ends[1][i][e] = ends[0][i][e];
    ends[0][i][e] = NULL;
  }
}

void harness_move_expert(struct harness* from, struct harness* to, uint32_t e) {
  move_projection(&from->site.gate, &to->site.gate, e);
  move_projection(&from->site.up, &to->site.up, e);
  move_projection(&from->site.down, &to->site.down, e);
}

void harness_close(struct harness* h) {
  moeplan_planner_destroy(h->planner);
  h->planner = NULL;
  while (h->memory != NULL) {
    void* block = h->memory;
    memcpy(&h->memory, block, sizeof(h->memory));
    free(block);
  }
}
