#define _GNU_SOURCE

#include "tools/bench_args.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The library refuses what it cannot plan; here a number must only be one. */
enum { MAX_NUMBER = 1 << 20 };

enum tool_status tool_parse_number(const char* option, const char* text,
                                   uint32_t most, uint32_t* number_out,
                                   struct tool_error* error) {
  char* end = NULL;
  const unsigned long number =
      isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
  if (number == 0 || number > most || *end != '\0') {
    return tool_refuse(error, "cannot use --%s %s: a whole number, 1..%u",
                       option, text, most);
  }
  *number_out = (uint32_t)number;
  return tool_ok;
}

static enum tool_status parse_seconds(const char* text, double* seconds_out,
                                      struct tool_error* error) {
  char* end = NULL;
  const double seconds = strtod(text, &end);
  if (end == text || *end != '\0' || !(seconds > 0.0 && seconds <= 60.0)) {
    return tool_refuse(
        error, "cannot use --seconds %s: a number above 0, at most 60", text);
  }
  *seconds_out = seconds;
  return tool_ok;
}

static enum tool_status parse_routing(const char* text,
                                      enum tool_routing* routing_out,
                                      struct tool_error* error) {
  for (int i = 0; i < TOOL_ROUTING_COUNT; i++) {
    if (strcmp(text, tool_routing_names[i]) != 0) continue;
    *routing_out = (enum tool_routing)i;
    return tool_ok;
  }
  return tool_refuse(error,
                     "cannot use --routing %s: router, uniform, zipf, same, "
                     "distinct and live are known",
                     text);
}

error_t tool_bench_option(int key, const char* value,
                          struct tool_bench_args* args,
                          enum tool_status* status_out,
                          struct tool_error* error) {
  const struct {
    enum tool_bench_key key;
    const char* name;
    uint32_t* number;
    uint32_t most;
  } numbers[] = {
      {TOOL_BENCH_HIDDEN, "hidden", &args->hidden, MAX_NUMBER},
      {TOOL_BENCH_INTERMEDIATE, "intermediate", &args->intermediate,
       MAX_NUMBER},
      {TOOL_BENCH_EXPERTS, "experts", &args->experts, TOOL_MAX_ROUTED_EXPERTS},
      {TOOL_BENCH_TOPK, "top-k", &args->topk, TOOL_MAX_ROUTED_EXPERTS},
      {TOOL_BENCH_SHARED, "shared", &args->shared, MAX_NUMBER},
      {TOOL_BENCH_SETS, "sets", &args->sets, TOOL_BENCH_MAX_SETS},
  };
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    if ((int)numbers[i].key != key) continue;
    *status_out = tool_parse_number(numbers[i].name, value, numbers[i].most,
                                    numbers[i].number, error);
    return 0;
  }
  if (key == TOOL_BENCH_ROUTING) {
    *status_out = parse_routing(value, &args->routing, error);
  } else if (key == TOOL_BENCH_SECONDS) {
    *status_out = parse_seconds(value, &args->seconds, error);
  } else if (key == TOOL_BENCH_PLOT) {
    args->plot = value;
  } else if (key == TOOL_BENCH_NUMERICS) {
    args->numerics = true;
  } else if (key == TOOL_BENCH_NODES) {
    args->nodes = true;
  } else {
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}
