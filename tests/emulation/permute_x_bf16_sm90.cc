#include "tests/emulation/ptx.h"

// One block runs at a time.
#define __shared__ static

#include "kernels/permute_x_bf16_sm90.cu"
