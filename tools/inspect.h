/* moeplan inspect: what a checkpoint holds, and all that is wrong with it. */

#ifndef MOEPLAN_TOOLS_INSPECT_H_
#define MOEPLAN_TOOLS_INSPECT_H_

#include <stdio.h>

#include "tools/args.h"
#include "tools/checkpoint.h"
#include "tools/tool_error.h"

/* Prints the list before it says that something is wrong. */
enum tool_status tool_inspect(const struct tool_args* args,
                              struct tool_error* error);

/* ---- what the text and the JSON are made of ---- */

struct tool_inspection {
  const struct tool_args* args;
  struct tool_checkpoint* checkpoint; /* NULL: it could not be loaded */
  struct tool_problems problems;
};

/* One rule of a site's tables against the names and, for the first tensor that
 * is there, its header. */
struct tool_finding {
  const char* middle; /* "" or ".experts.*" */
  const char* suffix;
  const struct tool_tensor* tensor; /* the first; NULL: none */
  uint32_t found, expected;         /* tensors */
};

enum { TOOL_MAX_FINDINGS = 32 };

/* Returns how many. */
size_t tool_inspect_site(struct tool_files* files, const struct tool_site* site,
                         struct tool_finding findings[TOOL_MAX_FINDINGS]);

void tool_inspect_text(const struct tool_inspection* inspection, FILE* out);
enum tool_status tool_inspect_json(const struct tool_inspection* inspection,
                                   FILE* out, struct tool_error* error);

#endif /* MOEPLAN_TOOLS_INSPECT_H_ */
