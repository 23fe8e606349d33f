#include "tests/emulation/ptx.h"

#define __shared__

#define _COOPERATIVE_GROUPS_H_
namespace cooperative_groups {
struct grid_group {
  using arrival_token = uint32_t;
  arrival_token barrier_arrive() const { return emulation::GridArrive(); }
  void barrier_wait(arrival_token&& token) const { emulation::GridWait(token); }
};
inline grid_group this_grid() { return {}; }
}  // namespace cooperative_groups

#include "kernels/group_pass.cuh"

#define memory (*block_memory())

#include "kernels/group_nvfp4_smxx.cu"
