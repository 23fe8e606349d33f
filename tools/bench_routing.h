/* Which experts the rows of a benchmark go to, drawn on the host with a fixed
 * seed. */

#ifndef MOEPLAN_TOOLS_BENCH_ROUTING_H_
#define MOEPLAN_TOOLS_BENCH_ROUTING_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/tool_error.h"

enum { TOOL_MAX_ROUTED_EXPERTS = 1024 }; /* the library's limit */

/* X(name, what) */
#define TOOL_ROUTING_MAP(X)                                           \
  X(router, "the site's own router, over random x")                   \
  X(uniform, "each row k experts, all equally likely")                \
  X(zipf, "each row k experts, expert e as likely as 1 / (e + 1)")    \
  X(same, "every row the same k experts")                             \
  X(distinct, "no expert twice")                                      \
  X(live,                                                             \
    "rows of one sequence: k x rows^0.775 experts, the rest are met " \
    "again")

enum tool_routing {
#define TOOL_ROUTING_ENUM(name, what) tool_routing_##name,
  TOOL_ROUTING_MAP(TOOL_ROUTING_ENUM)
#undef TOOL_ROUTING_ENUM
      TOOL_ROUTING_COUNT,
};

extern const char* const tool_routing_names[TOOL_ROUTING_COUNT];

struct tool_draw {
  enum tool_routing routing; /* not router */
  uint32_t rows, experts, k;
  uint32_t set; /* each set is another draw; same arguments, same ids */
};

/* tool_usage unless the site has enough experts for this many rows. */
enum tool_status tool_routing_check(const struct tool_draw* draw,
                                    struct tool_error* error);

/* ids [rows, k] and weights [rows, k]. */
void tool_routing_draw(const struct tool_draw* draw, int32_t* ids,
                       float* weights);

/* How many experts occur among `count` ids. */
uint32_t tool_routing_count(const int32_t* ids, size_t count);

#endif /* MOEPLAN_TOOLS_BENCH_ROUTING_H_ */
