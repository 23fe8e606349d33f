// A GPU's blocks as fibers: the sources of CUDA kernels, compiled as C++, run without a
// GPU. One cluster of blocks at a time, or a whole cooperative grid, their threads taking
// turns (fibers.h), so that barriers, rings and indexes do what they do there; wgmma and
// mma.sync are the host's model of a tensor-core step. What is asynchronous ends as late
// as it may: a cp.async when its thread's arrival is due or its group is waited for, a
// bulk copy when somebody waits for its barrier, a wgmma when its group is waited for.
// It begins at once: a copy's target is undefined from its issue on, and what a wgmma
// reads must be there. Under TSan only what orders memory there does: no shuffle and no
// mma, though a fence is one with the atomics around it.

#ifndef MOEPLAN_TESTS_EMULATION_DEVICE_H_
#define MOEPLAN_TESTS_EMULATION_DEVICE_H_

#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "kernels/kernels.h"

// CUDA's words. A file that includes a kernel defines __shared__.
#undef __align__
#undef __device__
#undef __forceinline__
#undef __global__
#undef __grid_constant__
#undef __host__
#undef __launch_bounds__
#undef __shared__
#define __align__(bytes)
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __host__
#define __launch_bounds__(...)

extern dim3 gridDim, blockDim;

namespace emulation {

constexpr uint32_t kSharedBytes = 232448;

// What a thread knows of itself.
struct Thread {
  uint3 thread, block;
  uint8_t* shared;  // memory of its block: address 0
};
const Thread& Self();

// Runs `body` as every thread of `blocks` blocks, `together` of them at a time: those of
// a cluster, or all of a cooperative grid. A later block begins when no thread of the
// earlier ones can go on.
void Launch(uint32_t blocks, uint32_t threads, uint32_t together,
            const std::function<void()>& body);

void SyncCluster();
// The barrier of a cooperative grid, of which the first thread's token matters.
uint32_t GridArrive();
void GridWait(uint32_t token);
void SyncThreads();
void SyncWarp();
void NamedBarrier(uint32_t name, uint32_t threads);
uint32_t Shuffle(uint32_t value, uint32_t from);
std::array<uint32_t, 32> OfAllLanes(uint32_t value);

// mbarriers, by their address.
void BarrierInit(uint32_t address, uint32_t arrivals);
void BarrierArrive(uint32_t address);
void BarrierArriveAt(uint32_t rank,
                     uint32_t address);                // a block of the cluster
void BarrierExpect(uint32_t address, uint32_t bytes);  // and arrive
void BarrierWait(uint32_t address, uint32_t parity);

// Copies into shared memory; Bulk completes on the barrier, in each block of the
// cluster whose bit is in `blocks`.
void Copy(uint32_t to, const void* from, uint32_t bytes);
void CopyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
              uint32_t blocks);
uint32_t OwnBit();  // in such `blocks`
// This thread's, but for bulk ones: a group ends; oldest first, until `pending` groups
// are left; all.
void CommitCopies();
void WaitCopies(size_t pending);
void FinishCopies();

// d [16, 8] += a b, as a warp's threads hold them (mma_m16n8k16_bf16).
void Mma(float* d, const uint32_t* a, const uint32_t* b);

// d [64, n] += a b, as a warpgroup's thread holds them; b by its descriptor. Groups
// are carried out, oldest first, until `pending` are left.
void Wgmma(float* d, uint32_t n, const uint32_t* a, uint64_t b);
void WgmmaCommit();
void WgmmaWait(size_t pending);

void Require(bool condition, const char* what);

}  // namespace emulation

#define threadIdx (emulation::Self().thread)
#define blockIdx (emulation::Self().block)

inline void __syncthreads() { emulation::SyncThreads(); }
inline void __syncwarp() { emulation::SyncWarp(); }

template <typename T>
T emulated_shuffle(T value, uint32_t from) {
  static_assert(sizeof(T) == 4, "one register");
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = emulation::Shuffle(bits, from);
  std::memcpy(&value, &bits, 4);
  return value;
}
template <typename T>
T __shfl_sync(unsigned, T value, uint32_t from) {
  return emulated_shuffle(value, from % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, uint32_t apart) {
  return emulated_shuffle(value, threadIdx.x % 32 ^ apart);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, uint32_t apart) {
  const uint32_t lane = threadIdx.x % 32;
  return emulated_shuffle(value, lane >= apart ? lane - apart : lane);
}

inline uint32_t __ballot_sync(unsigned, bool flag) {
  uint32_t bits = 0, lane = 0;
  for (uint32_t value : emulation::OfAllLanes(flag)) bits |= value << lane++;
  return bits;
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t value) {
  const auto all = emulation::OfAllLanes(value);
  return *std::max_element(all.begin(), all.end());
}
inline uint32_t __reduce_min_sync(unsigned, uint32_t value) {
  const auto all = emulation::OfAllLanes(value);
  return *std::min_element(all.begin(), all.end());
}
inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

using std::max;
using std::min;

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Four of the eight bytes of x and y; the kernels use no sign mode.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t from = selector >> (4 * i) & 7;
    out |= static_cast<uint32_t>(bytes >> (8 * from) & 255) << (8 * i);
  }
  return out;
}

#endif  // MOEPLAN_TESTS_EMULATION_DEVICE_H_
