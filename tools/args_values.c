/* Values of options that several commands have. */

#define _GNU_SOURCE

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args.h"

/* A row count, or 0. */
static uint32_t parse_rows(const char* text, char** end_out) {
  *end_out = (char*)text;
  if (!isdigit((unsigned char)*text)) return 0;
  const unsigned long rows = strtoul(text, end_out, 10);
  return rows <= TOOL_MAX_ROWS ? (uint32_t)rows : 0;
}

enum tool_status tool_parse_row_list(const char* text, struct tool_args* args,
                                     struct tool_error* error) {
  const char* at = text;
  size_t count = 0;
  for (;;) {
    char* end = NULL;
    const uint32_t rows = parse_rows(at, &end);
    if (rows == 0 || (*end != ',' && *end != '\0')) {
      return tool_refuse(error,
                         "cannot use --rows %s: each row count is a whole "
                         "number, 1..%d, with commas between",
                         text, TOOL_MAX_ROWS);
    }
    if (count == TOOL_MAX_ROW_COUNTS) {
      return tool_refuse(error, "cannot use --rows %s: at most %d row counts",
                         text, TOOL_MAX_ROW_COUNTS);
    }
    args->rows[count] = rows;
    count++;
    if (*end == '\0') break;
    at = end + 1;
  }
  args->num_rows = count;
  return tool_ok;
}

enum tool_status tool_parse_device(const char* text, struct tool_args* args,
                                   struct tool_error* error) {
  const char* number = text + strlen("cuda:");
  const bool cuda = strncmp(text, "cuda:", strlen("cuda:")) == 0 &&
                    strlen(number) >= 1 && strlen(number) <= 4 &&
                    strspn(number, "0123456789") == strlen(number);
  if (!cuda && strcmp(text, "host") != 0) {
    return tool_refuse(error,
                       "cannot use --device %s: host, or cuda:N with a number "
                       "N, is a device",
                       text);
  }
  args->device = text;
  return tool_ok;
}

enum tool_status tool_parse_plan_device(const char* text,
                                        struct tool_args* args,
                                        struct tool_error* error) {
  static const struct {
    const char* text;
    const char* device;
  } described[] = {
      {"h200", "plan:h200"}, {"h100", "plan:h100"}, {"gb10", "plan:gb10"}};
  for (size_t i = 0; i < sizeof(described) / sizeof(described[0]); i++) {
    if (strcmp(text, described[i].text) != 0) continue;
    args->device = described[i].device;
    return tool_ok;
  }
  if (strcmp(text, "host") == 0 || strncmp(text, "cuda:", 5) == 0) {
    return tool_parse_device(text, args, error);
  }
  return tool_refuse(error,
                     "cannot use --device %s: h200, h100, gb10, host and "
                     "cuda:N are devices to plan for",
                     text);
}

enum tool_status tool_parse_kind(const char* text, struct tool_args* args,
                                 struct tool_error* error) {
  if (strcmp(text, "routed") != 0 && strcmp(text, "dense") != 0) {
    return tool_refuse(
        error, "cannot use --site %s: routed and dense are the kinds", text);
  }
  args->kind = text;
  return tool_ok;
}
