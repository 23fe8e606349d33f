/* The scales of NVFP4 tensors: checked, and their range kept. */

#ifndef MOEPLAN_TOOLS_SCALES_H_
#define MOEPLAN_TOOLS_SCALES_H_

#include <stdint.h>

#include "tools/naming.h"
#include "tools/safetensors.h"

/* Of what was read so far. */
struct tool_scale_range {
  uint64_t num_codes;
  uint8_t code_min, code_max; /* E4M3; ascending codes are ascending values */
  uint64_t num_scales;
  float scale_min, scale_max; /* as weight_scale_2, whatever the naming */
};

/* Value of an E4M3 code that is a scale, 0x00..0x7E. */
float tool_e4m3_value(uint8_t code);

/* Every byte is a code 0x00..0x7E: neither negative nor a NaN. */
enum tool_status tool_scales_check_codes(const struct tool_tensor* tensor,
                                         struct tool_scale_range* range,
                                         struct tool_error* error);

/* The float32 of a tensor as weight_scale_2: for tool_content_scale as it is,
 * for tool_content_inverse 1 over it. */
enum tool_status tool_scales_read(const struct tool_tensor* tensor,
                                  enum tool_content content,
                                  struct tool_scale_range* range,
                                  float* scale_out, struct tool_error* error);

#endif /* MOEPLAN_TOOLS_SCALES_H_ */
