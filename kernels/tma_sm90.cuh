// Clusters, bulk copies, named barriers and register counts of sm_90: one
// instruction, one function. Addresses of shared memory are 32-bit.

#ifndef MOEPLAN_KERNELS_TMA_SM90_CUH_
#define MOEPLAN_KERNELS_TMA_SM90_CUH_

#include <stdint.h>

namespace moep {

__device__ __forceinline__ uint32_t cluster_ctarank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ uint32_t cluster_nctarank() {
  uint32_t blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// Every thread of the cluster; what was written before can be seen after it.
__device__ __forceinline__ void barrier_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// `bytes` from memory, a multiple of 16, completing on the barrier.
__device__ __forceinline__ void cp_async_bulk(uint32_t shared,
                                              const void* global,
                                              uint32_t bytes,
                                              uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// The same to `shared` in each block of the cluster whose bit is in `blocks`,
// completing on the barrier at `barrier` there.
__device__ __forceinline__ void cp_async_bulk_multicast(uint32_t shared,
                                                        const void* global,
                                                        uint32_t bytes,
                                                        uint32_t barrier,
                                                        uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

// One box of a matrix, from column `column` of row `row` on, to `shared` in each
// block of the cluster whose bit is in `blocks`, completing on the barrier at
// `barrier` there. What lies outside the matrix is zero.
__device__ __forceinline__ void cp_async_bulk_tensor_multicast(
    uint32_t shared, const void* map, uint32_t column, uint32_t row,
    uint32_t barrier, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier),
      "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

// The same to this block alone, of what is read once.
__device__ __forceinline__ void cp_async_bulk_tensor(
    uint32_t shared, const void* map, uint32_t column, uint32_t row,
    uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

// A tensor map in memory, as a copy before this launch left it, before its use here.
__device__ __forceinline__ void fence_proxy_tensormap_acquire(const void* map) {
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map)
      : "memory");
}

// What other instructions wrote to shared memory, before wgmma reads it.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Named barriers: `threads` of the block, those that only arrive counted.
__device__ __forceinline__ void barrier_sync(uint32_t name, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t name,
                                               uint32_t threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Registers of each thread of a warpgroup from here on.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_TMA_SM90_CUH_
