/* The union table of a verify group: its rows' distinct experts, and which slot
 * of which row wants each. */

#ifndef MOEPLAN_KERNELS_UNION_H_
#define MOEPLAN_KERNELS_UNION_H_

#include "kernels/portable.h"

enum {
  MOEP_UNION_ROWS = 8,     /* rows of a group at most: N of one mma.sync */
  MOEP_UNION_ENTRIES = 64, /* rows x topk of a group at most */
};

/* Fill eid [64] and slot [64, 8] from ids [rows, topk]. Entry u stands for
 * expert eid[u]; row r takes part with its slot slot[8 u + r]. Both are -1 where
 * unused. Entries come in order of first appearance; ids outside 0..experts-1
 * claim nothing. Each other (row, slot) claims exactly one place. An id that a
 * row repeats (outside routing may) takes another entry of the same expert.
 * Returns the number of entries. */
MOEP_INLINE uint32_t moep_union_build(const int32_t* ids, uint32_t rows,
                                      uint32_t topk, uint32_t experts,
                                      int32_t* eid, int32_t* slot) {
  uint32_t used = 0;
  for (uint32_t u = 0; u < MOEP_UNION_ENTRIES; u++) eid[u] = -1;
  for (uint32_t i = 0; i < MOEP_UNION_ENTRIES * MOEP_UNION_ROWS; i++) {
    slot[i] = -1;
  }
  for (uint32_t r = 0; r < rows; r++) {
    for (uint32_t j = 0; j < topk; j++) {
      const int32_t id = ids[r * topk + j];
      if (id < 0 || (uint32_t)id >= experts) continue;
      uint32_t u = 0;
      while (u < used && (eid[u] != id || slot[u * MOEP_UNION_ROWS + r] >= 0)) {
        u++;
      }
      if (u == used) eid[used++] = id;
      slot[u * MOEP_UNION_ROWS + r] = (int32_t)j;
    }
  }
  return used;
}

#endif /* MOEPLAN_KERNELS_UNION_H_ */
