#include "tests/emulation/ptx.h"

#define __shared__
#define __CUDA_ARCH_FEAT_SM90_ALL

#define memory (*block_memory())

#include "kernels/grouped_nvfp4_sm90.cu"
