/* moeplan bench --numerics: how far from exact a routed expert's down projection
 * is, before the combine, by the grouped kernels (a prefill plan) and by those of
 * single rows (a per-row plan). The site is fixed: 64 rows, top-8 of 16 experts,
 * hidden 256, intermediate 512, random NVFP4. */

#ifndef MOEPLAN_TOOLS_BENCH_NUMERICS_H_
#define MOEPLAN_TOOLS_BENCH_NUMERICS_H_

#include <stddef.h>

#include "tools/args.h"
#include "tools/bench_numerics_data.h"
#include "tools/tool_error.h"

/* max_rel of either path against exact. */
#define TOOL_NUMERICS_BAR 0.0040

/* Exact: float64 over the weights as NVFP4 means them. Rounded: the same over
 * each weight, weight_scale_2 included, rounded to bf16 first. */
enum tool_numerics_line {
  tool_numerics_grouped_exact,
  tool_numerics_gemv_exact,
  tool_numerics_grouped_rounded,
  tool_numerics_grouped_gemv,
  TOOL_NUMERICS_LINES,
};

struct tool_numerics_errors {
  double max_abs;
  double of_largest; /* max_abs by the reference's largest magnitude */
  double max_rel;    /* over outputs above 2^-8 of that */
};

struct tool_numerics_report {
  const char* device;
  struct tool_numerics_errors lines[TOOL_NUMERICS_LINES];
  size_t outputs, different; /* whose bits are not the same by both paths */
};

/* tool_failed, after the report, if a max_rel against exact is above the bar or
 * the two paths differ. */
enum tool_status tool_bench_numerics(const struct tool_args* args,
                                     struct tool_error* error);

/* bench_numerics_report.c */
enum tool_status tool_numerics_table(const struct tool_numerics_report* report,
                                     struct tool_error* error);
enum tool_status tool_numerics_json(const struct tool_numerics_report* report,
                                    struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_NUMERICS_H_ */
