#include "tools/scales.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CODE_MAX = 0x7E };

float tool_e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  return exponent == 0 ? ldexpf((float)mantissa, -9)
                       : ldexpf((float)(8 + mantissa), exponent - 10);
}

static enum tool_status refuse_code(const struct tool_tensor* tensor,
                                    uint64_t at, struct tool_error* error) {
  const unsigned code = tensor->data[at];
  return tool_fail(error,
                   "cannot load %s: tensor %s: expected E4M3 block scales, "
                   "codes 0x00..0x7E, found 0x%02X, %s, at byte %" PRIu64,
                   tensor->file->path, tensor->name, code,
                   (code & 0x7F) == 0x7F ? "a NaN" : "a negative number", at);
}

enum tool_status tool_scales_check_codes(const struct tool_tensor* tensor,
                                         struct tool_scale_range* range,
                                         struct tool_error* error) {
  enum tool_status status = tool_tensor_check(tensor, error);
  if (status != tool_ok) return status;
  uint8_t low = UINT8_MAX;
  uint8_t high = 0;
  for (uint64_t i = 0; i < tensor->bytes; i++) {
    const uint8_t code = tensor->data[i];
    if (code > CODE_MAX) return refuse_code(tensor, i, error);
    if (code < low) low = code;
    if (code > high) high = code;
  }
  if (tensor->bytes == 0) return tool_ok;
  if (range->num_codes == 0 || low < range->code_min) range->code_min = low;
  if (high > range->code_max) range->code_max = high;
  range->num_codes += tensor->bytes;
  return tool_ok;
}

enum tool_status tool_scales_read(const struct tool_tensor* tensor,
                                  enum tool_content content,
                                  struct tool_scale_range* range,
                                  float* scale_out, struct tool_error* error) {
  enum tool_status status = tool_tensor_check(tensor, error);
  if (status != tool_ok) return status;
  float found = 0.0f;
  memcpy(&found, tensor->data, sizeof(found));
  const bool inverse = content == tool_content_inverse;
  /* The inverse of a subnormal may be infinite. */
  const float scale = inverse ? 1.0f / found : found;
  if (!isfinite(found) || !isfinite(scale) || scale < 0.0f) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected a finite scale, %s, "
                     "found %g",
                     tensor->file->path, tensor->name,
                     inverse ? "above 0, and so its inverse" : "0 or more",
                     (double)found);
  }
  if (range->num_scales == 0 || scale < range->scale_min) {
    range->scale_min = scale;
  }
  if (range->num_scales == 0 || scale > range->scale_max) {
    range->scale_max = scale;
  }
  range->num_scales++;
  *scale_out = scale;
  return tool_ok;
}
