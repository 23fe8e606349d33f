/* Stage 5: grid, bytes and flop of a node. */

#ifndef MOEPLAN_LIB_COST_H_
#define MOEPLAN_LIB_COST_H_

#include "lib/plan.h"

/* Fill grid, bytes and flop of a node whose step, kernel and rows are set.
 * Bytes count each weight once, of as many experts as the rows can reach, and
 * each input and output element once. */
void moep_cost_fill(const struct moeplan_plan* plan, struct moep_node* node);

#endif /* MOEPLAN_LIB_COST_H_ */
