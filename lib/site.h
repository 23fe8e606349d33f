/* Stage 3: the site's blob. */

#ifndef MOEPLAN_LIB_SITE_H_
#define MOEPLAN_LIB_SITE_H_

#include "kernels/site_table.h"
#include "lib/planner.h"

/* Where tensor maps begin in it; 0: the planner's kernels read no weights by them. */
uint32_t moep_site_blob_maps(const struct moeplan_planner* planner);

/* Its bytes, the maps' counted. */
size_t moep_site_blob_bytes(const struct moeplan_planner* planner);

#endif /* MOEPLAN_LIB_SITE_H_ */
