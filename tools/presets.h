/* Shapes of models that people serve, by name. */

#ifndef MOEPLAN_TOOLS_PRESETS_H_
#define MOEPLAN_TOOLS_PRESETS_H_

#include <stdio.h>

#include "tools/shape.h"
#include "tools/tool_error.h"

/* The preset's shape, or a refusal that lists the names. */
enum tool_status tool_preset_find(const char* name,
                                  struct tool_shape* shape_out,
                                  struct tool_error* error);

/* A line a preset. */
void tool_presets_print(FILE* out);

#endif /* MOEPLAN_TOOLS_PRESETS_H_ */
