#include "lib/row_groups.h"

uint32_t moep_group_count(uint32_t rows, uint32_t cap) {
  return (rows + cap - 1) / cap;
}

struct moep_group moep_group_at(uint32_t rows, uint32_t cap, uint32_t index) {
  const uint32_t groups = moep_group_count(rows, cap);
  const uint32_t narrow = rows / groups, wide = rows % groups;
  return (struct moep_group){
      .begin = index * narrow + (index < wide ? index : wide),
      .count = narrow + (index < wide ? 1 : 0),
  };
}
