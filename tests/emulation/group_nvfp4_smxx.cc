#include "tests/emulation/ptx.h"

#define __shared__ thread_local

// A grid of one block: its barrier is the block's.
#define _COOPERATIVE_GROUPS_H_
namespace cooperative_groups {
struct grid_group {
  using arrival_token = uint32_t;
  arrival_token barrier_arrive() const {
    emulation::Require(gridDim.x == 1, "a grid of one block");
    emulation::SyncThreads();
    return 1;
  }
  void barrier_wait(arrival_token&& token) const {
    emulation::Require(threadIdx.x != 0 || token == 1, "the first's token");
    emulation::SyncThreads();
  }
};
inline grid_group this_grid() { return {}; }
}  // namespace cooperative_groups

#include "kernels/group_pass.cuh"

namespace {
// As in grouped_nvfp4_sm90.cc.
thread_local auto block_memory =
    reinterpret_cast<uint8_t (*)[]>(emulation::shared);
}  // namespace
#define memory (*block_memory)

#include "kernels/group_nvfp4_smxx.cu"
