#include "tests/emulation/ptx.h"

#define __shared__ thread_local
#define __CUDA_ARCH_FEAT_SM90_ALL

namespace {
// The kernel's extern array is its block's: what is declared there is a pointer.
thread_local auto block_memory =
    reinterpret_cast<uint8_t (*)[]>(emulation::shared);
}  // namespace
#define memory (*block_memory)

#include "kernels/grouped_nvfp4_sm90.cu"
