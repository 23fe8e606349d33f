/* Compare what a device computed with what a file expects. */

#ifndef MOEPLAN_TOOLS_COMPARE_H_
#define MOEPLAN_TOOLS_COMPARE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest relative L2 error of y against the float32 reference. A module run in
 * bf16 has 0.0053..0.0059. */
#define TOOL_ERROR_BAR 0.0040

float tool_bf16_to_float(uint16_t bits);
uint16_t tool_bf16_from_float(float value); /* nearest even; no NaN */

/* Sums for a relative L2 error, |y - reference| / |reference|. */
struct tool_distance {
  double difference;
  double reference;
};

/* y: bf16, aligned; reference: float32, aligned to nothing. */
void tool_distance_add(struct tool_distance* distance, const uint16_t* y,
                       const void* reference, size_t count);

/* 0 for two zeros, infinity or NaN where y is not finite. */
double tool_distance_relative(const struct tool_distance* distance);

/* Sorts `ids` and compares with `expected`, int32 aligned to nothing. */
bool tool_ids_match(int32_t* ids, const void* expected, uint32_t count);

#endif /* MOEPLAN_TOOLS_COMPARE_H_ */
