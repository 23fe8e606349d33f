#include "tests/emulation/ptx.h"

#define __shared__
#define __CUDA_ARCH_FEAT_SM90_ALL

namespace {
// What the kernel's extern array is.
alignas(1024) uint8_t memory[emulation::kSharedBytes];
const bool placed = [] {
  emulation::shared = memory;
  return true;
}();
}  // namespace

#include "kernels/grouped_nvfp4_sm90.cu"
