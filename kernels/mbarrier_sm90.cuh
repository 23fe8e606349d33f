// mbarriers of sm_90, in shared memory of a block or of its cluster: one
// instruction, one function. Addresses of shared memory are 32-bit.

#ifndef MOEPLAN_KERNELS_MBARRIER_SM90_CUH_
#define MOEPLAN_KERNELS_MBARRIER_SM90_CUH_

#include <stdint.h>

namespace moep {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier,
                                              uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals)
               : "memory");
}

// Makes initialised barriers known to the cluster and to the copy engine.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

// Without a branch: one between two groups of wgmma may make the compiler serialise them.
__device__ __forceinline__ void mbarrier_arrive_if(uint32_t barrier, bool on) {
  asm volatile(
      "{\n"
      ".reg .pred on;\n"
      "setp.ne.u32 on, %1, 0;\n"
      "@on mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(barrier),
      "r"(static_cast<uint32_t>(on))
      : "memory");
}

// Arrive at the barrier of block `rank` of the cluster that stands where
// `barrier` stands in this block.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier,
                                                        uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// The same without a branch. `rank` is of the cluster also where nothing arrives.
__device__ __forceinline__ void mbarrier_arrive_cluster_if(uint32_t barrier,
                                                           uint32_t rank,
                                                           bool on) {
  asm volatile(
      "{\n"
      ".reg .pred on;\n"
      ".reg .b32 there;\n"
      "setp.ne.u32 on, %2, 0;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "@on mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(rank), "r"(static_cast<uint32_t>(on))
      : "memory");
}

// Arrive; the phase also waits for `bytes` of bulk copies.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier,
                                                          uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Arrive when every cp.async of this thread so far is done.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(
    uint32_t barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
      : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier,
                                                  uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Until the phase of `parity` is complete.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier,
                                              uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_MBARRIER_SM90_CUH_
