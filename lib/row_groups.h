/* Stage 5: the even split of rows into groups. */

#ifndef MOEPLAN_LIB_ROW_GROUPS_H_
#define MOEPLAN_LIB_ROW_GROUPS_H_

#include <stdint.h>

struct moep_group {
  uint32_t begin, count;
};

/* Groups needed for `rows` rows, at most `cap` a group: ceil(rows / cap). */
uint32_t moep_group_count(uint32_t rows, uint32_t cap);

/* Group `index` of that split: contiguous, widths differing by at most 1, wider
 * ones first (9 rows, cap 8: 5 + 4). */
struct moep_group moep_group_at(uint32_t rows, uint32_t cap, uint32_t index);

#endif /* MOEPLAN_LIB_ROW_GROUPS_H_ */
