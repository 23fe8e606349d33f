/* A JSON document to stdout, and what several documents hold. */

#ifndef MOEPLAN_TOOLS_OUTPUT_JSON_H_
#define MOEPLAN_TOOLS_OUTPUT_JSON_H_

#include <jansson.h>

#include "tools/bench_clock.h"
#include "tools/tool_error.h"

/* Writes the document, all of it or nothing, and releases it. NULL: it could not
 * be made, for lack of memory. */
enum tool_status tool_output_json(json_t* document, struct tool_error* error);

/* Times in seconds; null where nothing was measured. */
json_t* tool_spread_json(const struct tool_spread* spread);

#endif /* MOEPLAN_TOOLS_OUTPUT_JSON_H_ */
