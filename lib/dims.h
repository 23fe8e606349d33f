/* Stage 1: a checked configuration. Everything later works from this. */

#ifndef MOEPLAN_LIB_DIMS_H_
#define MOEPLAN_LIB_DIMS_H_

#include "kernels/kernels.h"
#include "kernels/route.h"
#include "lib/hooks.h"

enum {
  MOEP_WIDTH_MULTIPLE = 16,
  MOEP_MAX_WIDTH = 1 << 16,
  MOEP_MAX_ROWS = 1 << 20,
};

struct moep_dims {
  enum moeplan_site_kind kind;
  uint32_t hidden;
  uint32_t inter;         /* of one routed expert; 0 in dense sites */
  uint32_t experts, topk; /* 0 in dense sites */
  uint32_t local_experts;
  uint32_t
      width; /* local width of the shared expert or the dense FFN; 0: none */
  uint32_t max_rows;
  uint32_t group_rows; /* widest union group that the device's kernels take */
  bool tiles;          /* the device's grouped kernels take tiles by name */
  float limit;         /* +infinity: none */
  struct moep_route_rule rule;
};

/* The widths that `op` works on, or-ed: their common factor of two is that of all. */
uint32_t moep_widths(const struct moep_dims* dims, enum moep_op op);

/* Check `config` and log the first contradiction. */
enum moeplan_status moep_dims_read(const struct moeplan_config* config,
                                   const struct moeplan_hooks* hooks,
                                   struct moep_dims* dims_out);

#endif /* MOEPLAN_LIB_DIMS_H_ */
