#include "tools/bench_routing.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tools/random_words.h"

/* The experts that K rows of a served model hit together were 8.00, 13.74, 18.76
 * and 23.35 at K = 1..4, top-8. 8 x K^0.775 gives 8.00, 13.69, 18.74 and 23.43,
 * and 40.1 at K = 8. */
static const double live_exponent = 0.775;

const char* const tool_routing_names[TOOL_ROUTING_COUNT] = {
#define ROUTING_NAME(name, what) #name,
    TOOL_ROUTING_MAP(ROUTING_NAME)
#undef ROUTING_NAME
};

struct urn {
  uint64_t seed;
  uint64_t drawn;
  uint32_t experts;
  bool used[TOOL_MAX_ROUTED_EXPERTS];
  double log_weight[TOOL_MAX_ROUTED_EXPERTS];
};

/* In (0, 1). */
static double draw_unit(struct urn* urn) {
  const uint64_t bits = tool_random_mix(urn->seed + urn->drawn);
  urn->drawn++;
  return ((double)(bits >> 11) + 0.5) * 0x1p-53;
}

/* `count` experts without replacement, from the used or from the unused ones:
 * Gumbel top-k. Marks them. */
static void pick(struct urn* urn, bool used, uint32_t count, int32_t* ids) {
  double key[TOOL_MAX_ROUTED_EXPERTS];
  for (uint32_t e = 0; e < urn->experts; e++) {
    const double gumbel = -log(-log(draw_unit(urn)));
    key[e] = urn->used[e] == used ? urn->log_weight[e] + gumbel : -INFINITY;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t best = 0;
    for (uint32_t e = 1; e < urn->experts; e++) {
      if (key[e] > key[best]) best = e;
    }
    ids[i] = (int32_t)best;
    key[best] = -INFINITY;
  }
  for (uint32_t i = 0; i < count; i++) urn->used[ids[i]] = true;
}

/* Experts that row `row` is the first to hit. Over the sets the rounded counts
 * have the right mean. */
static uint32_t live_fresh(const struct tool_draw* draw, uint32_t row) {
  const double before = row == 0 ? 0.0 : pow(row, live_exponent);
  const double mean = draw->k * (pow(row + 1.0, live_exponent) - before);
  const double set = draw->set;
  const double fresh =
      floor(mean * (set + 1.0) + 0.5) - floor(mean * set + 0.5);
  return fresh > draw->k ? draw->k : (uint32_t)fresh;
}

static void draw_live_row(struct urn* urn, const struct tool_draw* draw,
                          uint32_t row, int32_t* ids) {
  uint32_t left = 0;
  for (uint32_t e = 0; e < urn->experts; e++) left += urn->used[e] ? 0 : 1;
  uint32_t fresh = live_fresh(draw, row);
  if (fresh > left) fresh = left;
  /* The old ones first: those that are drawn become old. */
  pick(urn, true, draw->k - fresh, ids);
  pick(urn, false, fresh, ids + draw->k - fresh);
}

static void draw_row(struct urn* urn, const struct tool_draw* draw,
                     uint32_t row, int32_t* ids) {
  int32_t* own = ids + (size_t)row * draw->k;
  switch (draw->routing) {
    case tool_routing_uniform:
    case tool_routing_zipf:
      memset(urn->used, 0, sizeof(urn->used));
      pick(urn, false, draw->k, own);
      return;
    case tool_routing_same:
      if (row == 0) pick(urn, false, draw->k, own);
      memmove(own, ids, draw->k * sizeof(*ids));
      return;
    case tool_routing_distinct:
      pick(urn, false, draw->k, own);
      return;
    case tool_routing_live:
      draw_live_row(urn, draw, row, own);
      return;
    case tool_routing_router:
    case TOOL_ROUTING_COUNT:
      return;
  }
}

enum tool_status tool_routing_check(const struct tool_draw* draw,
                                    struct tool_error* error) {
  const uint64_t slots = (uint64_t)draw->rows * draw->k;
  if (draw->routing != tool_routing_distinct || slots <= draw->experts) {
    return tool_ok;
  }
  return tool_refuse(error,
                     "cannot use --routing distinct for %u rows: they go to "
                     "%llu experts, the site has %u",
                     draw->rows, (unsigned long long)slots, draw->experts);
}

void tool_routing_draw(const struct tool_draw* draw, int32_t* ids,
                       float* weights) {
  struct urn urn = {.seed = ((uint64_t)draw->routing << 56) +
                            ((uint64_t)draw->rows << 32) +
                            ((uint64_t)draw->set << 20),
                    .experts = draw->experts};
  urn.seed = tool_random_mix(urn.seed);
  for (uint32_t e = 0; e < draw->experts; e++) {
    /* e is whole, so log1p gains nothing. */
    /* cppcheck-suppress unpreciseMathCall */
    const double zipf = -log(e + 1.0);
    urn.log_weight[e] = draw->routing == tool_routing_zipf ? zipf : 0.0;
  }
  for (uint32_t row = 0; row < draw->rows; row++) {
    draw_row(&urn, draw, row, ids);
  }
  for (size_t i = 0; i < (size_t)draw->rows * draw->k; i++) {
    weights[i] = (float)((0.5 + draw_unit(&urn)) / draw->k);
  }
}

uint32_t tool_routing_count(const int32_t* ids, size_t count) {
  bool hit[TOOL_MAX_ROUTED_EXPERTS] = {false};
  uint32_t distinct = 0;
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= TOOL_MAX_ROUTED_EXPERTS) continue;
    distinct += hit[ids[i]] ? 0 : 1;
    hit[ids[i]] = true;
  }
  return distinct;
}
