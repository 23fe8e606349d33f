/* Who holds what when a site is spread over ranks: rank r of n has the experts
 * r E / n .. (r + 1) E / n - 1, and the same share of the shared or dense expert's
 * columns, in units of 16. The ranks' outputs add up to the site's. */

#ifndef MOEPLAN_TOOLS_RANKS_H_
#define MOEPLAN_TOOLS_RANKS_H_

#include <moeplan.h>

#include "tools/tool_error.h"

enum { TOOL_MAX_RANKS = 64 };

/* X(name, what) */
#define TOOL_SHARED_MAP(X)                            \
  X(split, "a shard on each rank")                    \
  X(first, "all of it on rank 0, nothing on another") \
  X(whole, "all of it on every rank")

enum tool_shared_on {
#define TOOL_SHARED_ENUM(name, what) tool_shared_##name,
  TOOL_SHARED_MAP(TOOL_SHARED_ENUM)
#undef TOOL_SHARED_ENUM
      TOOL_SHARED_COUNT,
};

extern const char* const tool_shared_names[TOOL_SHARED_COUNT];

struct tool_rank {
  uint32_t index, count; /* index < count */
  enum tool_shared_on shared;
};

/* The one rank of a site that is not spread. */
#define TOOL_ONE_RANK ((struct tool_rank){0, 1, tool_shared_split})

struct tool_range {
  uint32_t begin, end;
};

struct tool_range tool_rank_experts(const struct tool_rank* rank,
                                    uint32_t experts);
/* Of the shared expert, or of a dense site. */
struct tool_range tool_rank_shared(const struct tool_rank* rank,
                                   uint32_t width);
struct tool_range tool_rank_dense(const struct tool_rank* rank, uint32_t width);

/* The rank's part of the whole site. */
void tool_rank_config(const struct tool_rank* rank,
                      const struct moeplan_config* whole,
                      struct moeplan_config* config_out);

/* tool_usage where the ranks' outputs would not add up to the site's, or `shared`
 * says nothing. */
enum tool_status tool_rank_check(const struct tool_rank* rank,
                                 const struct moeplan_config* whole,
                                 struct tool_error* error);

#endif /* MOEPLAN_TOOLS_RANKS_H_ */
