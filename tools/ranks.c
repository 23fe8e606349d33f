#include "tools/ranks.h"

enum { COLUMN_UNIT = 16 }; /* widths are multiples of it */

const char* const tool_shared_names[TOOL_SHARED_COUNT] = {
#define SHARED_NAME(name, what) #name,
    TOOL_SHARED_MAP(SHARED_NAME)
#undef SHARED_NAME
};

struct tool_range tool_rank_experts(const struct tool_rank* rank,
                                    uint32_t experts) {
  const uint64_t n = experts;
  return (struct tool_range){
      (uint32_t)(n * rank->index / rank->count),
      (uint32_t)(n * (rank->index + 1) / rank->count),
  };
}

struct tool_range tool_rank_dense(const struct tool_rank* rank,
                                  uint32_t width) {
  const struct tool_range units = tool_rank_experts(rank, width / COLUMN_UNIT);
  return (struct tool_range){COLUMN_UNIT * units.begin,
                             COLUMN_UNIT * units.end};
}

struct tool_range tool_rank_shared(const struct tool_rank* rank,
                                   uint32_t width) {
  switch (rank->shared) {
    case tool_shared_split:
      return tool_rank_dense(rank, width);
    case tool_shared_first:
      return (struct tool_range){0, rank->index == 0 ? width : 0};
    case tool_shared_whole:
    case TOOL_SHARED_COUNT:
      break;
  }
  return (struct tool_range){0, width};
}

void tool_rank_config(const struct tool_rank* rank,
                      const struct moeplan_config* whole,
                      struct moeplan_config* config_out) {
  struct moeplan_config config = *whole;
  if (whole->kind == moeplan_site_dense) {
    const struct tool_range columns =
        tool_rank_dense(rank, whole->dense_local_intermediate);
    config.dense_local_intermediate = columns.end - columns.begin;
  } else {
    const struct tool_range experts =
        tool_rank_experts(rank, whole->n_routed_experts);
    const struct tool_range columns =
        tool_rank_shared(rank, whole->shared_local_intermediate);
    config.local_experts = experts.end - experts.begin;
    config.shared_local_intermediate = columns.end - columns.begin;
  }
  *config_out = config;
}

enum tool_status tool_rank_check(const struct tool_rank* rank,
                                 const struct moeplan_config* whole,
                                 struct tool_error* error) {
  const bool dense = whole->kind == moeplan_site_dense;
  if (rank->count > 1 && rank->shared == tool_shared_whole && !dense &&
      whole->shared_local_intermediate != 0) {
    return tool_refuse(
        error,
        "cannot run %u ranks with --shared-expert whole: the sum "
        "of their outputs would hold the shared expert %u times",
        rank->count, rank->count);
  }
  if (dense && rank->shared != tool_shared_split) {
    return tool_refuse(error,
                       "cannot use --shared-expert %s for a dense site: it has "
                       "no shared expert",
                       tool_shared_names[rank->shared]);
  }
  if (dense && whole->dense_local_intermediate / COLUMN_UNIT < rank->count) {
    return tool_refuse(
        error,
        "cannot run %u ranks of a dense site of %u columns: each "
        "rank has at least %d",
        rank->count, whole->dense_local_intermediate, COLUMN_UNIT);
  }
  return tool_ok;
}
