/* Stage 4: the levers, checked. */

#ifndef MOEPLAN_LIB_OPTIONS_H_
#define MOEPLAN_LIB_OPTIONS_H_

#include "lib/dims.h"

enum {
  MOEP_GROUPED_MIN_ROWS = 9, /* decode and verify own 1..8 */
  MOEP_MAX_LEVER_TEXT = 64,
};

/* Copy `options` (NULL: defaults) and refuse what no plan can honour. */
enum moeplan_status moep_options_read(const struct moeplan_options* options,
                                      const struct moeplan_hooks* hooks,
                                      struct moeplan_options* options_out);

/* The levers away from their default, in a fixed order. Writes the index-th as
 * "name value" and its variable's name; false past the last one. */
struct moep_lever {
  char text[MOEP_MAX_LEVER_TEXT];
  const char* variable;
};
bool moep_lever_at(const struct moeplan_options* options, uint32_t index,
                   struct moep_lever* lever_out);

/* Name of a recipe, "auto" included; NULL for values this build does not know. */
const char* moep_recipe_name(enum moeplan_recipe recipe);

#endif /* MOEPLAN_LIB_OPTIONS_H_ */
