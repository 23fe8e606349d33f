#include "tests/emulation/ptx.h"

// One block runs at a time.
#define __shared__ static

#include "kernels/combine_bf16_smxx.cu"
