/* One tensor-core step (m16n8k16 bf16, float32 accumulator) as an integer
 * model: d = c + sum of 16 products, bit for bit what the GPU computes. The rule
 * is in docs/numerics.md; tests hold it to recorded steps and chains. */

#ifndef MOEPLAN_KERNELS_HOST_STEP_H_
#define MOEPLAN_KERNELS_HOST_STEP_H_

#include <stdint.h>

/* Parameters of a step, a row per measured GPU architecture. */
struct moep_step_model {
  uint32_t sm;            /* compute capability x 10 */
  uint32_t fraction_bits; /* that terms keep below the largest exponent */
  int32_t least_exponent; /* the largest exponent counts as this at least */
};

/* The row whose bits the host device gives. */
extern const struct moep_step_model moep_step_sm90;

/* a, b: 16 bf16 operands; c: the accumulator. NaN results are 0x7FFFFFFF. */
float moep_step(const struct moep_step_model* model, const uint16_t* a,
                const uint16_t* b, float c);

#endif /* MOEPLAN_KERNELS_HOST_STEP_H_ */
