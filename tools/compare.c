#include "tools/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float tool_bf16_to_float(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value = 0.0f;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t tool_bf16_from_float(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void tool_distance_add(struct tool_distance* distance, const uint16_t* y,
                       const void* reference, size_t count) {
  const char* at = reference;
  for (size_t i = 0; i < count; i++) {
    float expected = 0.0f;
    memcpy(&expected, at + i * sizeof(expected), sizeof(expected));
    const double difference = (double)tool_bf16_to_float(y[i]) - expected;
    distance->difference += difference * difference;
    distance->reference += (double)expected * expected;
  }
}

double tool_distance_relative(const struct tool_distance* distance) {
  if (distance->reference == 0.0) {
    return distance->difference == 0.0 ? 0.0 : INFINITY;
  }
  return sqrt(distance->difference / distance->reference);
}

static int compare_ids(const void* left, const void* right) {
  const int32_t a = *(const int32_t*)left;
  const int32_t b = *(const int32_t*)right;
  return (a > b) - (a < b);
}

bool tool_ids_match(int32_t* ids, const void* expected, uint32_t count) {
  qsort(ids, count, sizeof(*ids), compare_ids);
  return memcmp(ids, expected, count * sizeof(*ids)) == 0;
}
