/* The data of bench --numerics: a site and rows with which one slot's down output
 * and its input are known through the public header, and the outputs in float64.
 *
 *   Routing from outside fills one slot of every row with weight 1: y in float32
 *   is that slot's down output, a bf16 number.
 *   x[0] is 1, every row of gate is 32 at k = 0 and zero elsewhere: silu(32) is
 *   32 in float32. Row i of up is 1 at k = i % H: h[i] = 32 x[i % H], exactly. */

#ifndef MOEPLAN_TOOLS_BENCH_NUMERICS_DATA_H_
#define MOEPLAN_TOOLS_BENCH_NUMERICS_DATA_H_

#include <stdbool.h>
#include <stdint.h>

enum {
  TOOL_NUMERICS_ROWS = 64,
  TOOL_NUMERICS_TOPK = 8,
  TOOL_NUMERICS_EXPERTS = 16,
  TOOL_NUMERICS_HIDDEN = 256,
  TOOL_NUMERICS_INTER = 512,
  TOOL_NUMERICS_BLOCK = 16, /* weights of one scale */
  TOOL_NUMERICS_SLOTS = TOOL_NUMERICS_ROWS * TOOL_NUMERICS_TOPK,
  TOOL_NUMERICS_OUTPUTS = TOOL_NUMERICS_SLOTS * TOOL_NUMERICS_HIDDEN,
};

/* NVFP4 [N, K]. */
#define TOOL_NUMERICS_PROJECTION(n, k)           \
  struct {                                       \
    uint8_t codes[n][(k) / 2];                   \
    uint8_t scale[n][(k) / TOOL_NUMERICS_BLOCK]; \
  }

/* Goes to the device as it is: every part is a multiple of 16 bytes. */
struct tool_numerics_inputs {
  TOOL_NUMERICS_PROJECTION(TOOL_NUMERICS_INTER, TOOL_NUMERICS_HIDDEN)
  gate, up; /* of every expert; weight_scale_2 is 1 */
  TOOL_NUMERICS_PROJECTION(TOOL_NUMERICS_HIDDEN, TOOL_NUMERICS_INTER)
  down[TOOL_NUMERICS_EXPERTS];
  uint16_t router[TOOL_NUMERICS_EXPERTS][TOOL_NUMERICS_HIDDEN]; /* not read */
  uint16_t x[TOOL_NUMERICS_ROWS][TOOL_NUMERICS_HIDDEN];
  /* Run j fills slot j of every row. */
  int32_t ids[TOOL_NUMERICS_TOPK][TOOL_NUMERICS_SLOTS];
  float topk_weights[TOOL_NUMERICS_SLOTS];
};

struct tool_numerics_data {
  struct tool_numerics_inputs inputs;
  float down_scale_2[TOOL_NUMERICS_EXPERTS];
  int32_t experts[TOOL_NUMERICS_SLOTS];
  double h[TOOL_NUMERICS_ROWS][TOOL_NUMERICS_INTER];
};

/* The same every time. `data` is zero. */
void tool_numerics_draw(struct tool_numerics_data* data);

/* Down's outputs, [rows, k, H]. Rounded: over weights which, weight_scale_2
 * included, are rounded to bf16 first. Otherwise over what NVFP4 means. */
void tool_numerics_reference(const struct tool_numerics_data* data,
                             bool rounded, double* out);

#endif /* MOEPLAN_TOOLS_BENCH_NUMERICS_DATA_H_ */
