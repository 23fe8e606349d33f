/* swiglu: h of gate and up that a matrix multiplication has left in memory. */

#include "kernels/host/parallel.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

enum { STEPS_PER_ELEMENT = 2 }; /* of moep_parallel's measure of work */

static void swiglu_row(const void* context, uint32_t item) {
  const struct moep_swiglu_args* args = context;
  const uint64_t at = (uint64_t)(args->rows.begin + item) * args->width;
  for (uint32_t i = 0; i < args->width; i++) {
    args->h[at + i] = moep_bf16_from_float(
        moep_swiglu(moep_bf16_to_float(args->gate[at + i]),
                    moep_bf16_to_float(args->up[at + i]), args->limit));
  }
}

cudaError_t moep_swiglu_bf16_host(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  (void)stream;
  const struct moep_swiglu_args* swiglu = &args->swiglu;
  const uint32_t rows = moep_rows_alive(&swiglu->rows);
  moep_parallel(rows, (uint64_t)rows * swiglu->width * STEPS_PER_ELEMENT,
                launch->threads, swiglu_row, swiglu);
  return cudaSuccess;
}
