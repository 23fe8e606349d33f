// PTX instructions of sm_80 and later: one instruction, one function, named
// after it. What needs a newer GPU is absent below it.

#ifndef MOEPLAN_KERNELS_PTX_SM80_CUH_
#define MOEPLAN_KERNELS_PTX_SM80_CUH_

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace moep {

// d += a b with a [16, 16] and b [16, 8] bf16, d [16, 8] float32. With
// g = lane / 4 and t = lane % 4, a lane holds
//   a: rows g, g + 8, g, g + 8; slots 2t, 2t + 1 (a[0], a[1]), 2t + 8, 2t + 9
//   b: column g; slots 2t, 2t + 1 (b[0]) and 2t + 8, 2t + 9 (b[1])
//   d: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4],
                                                  const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8x8 tiles of bf16: lane i gives the address of row i % 8 of tile i / 8 and
// gets words i % 4 of row i / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4],
                                            uint32_t address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(address)
      : "memory");
}

// 8 bytes of memory that nothing writes while work is in flight, read once.
__device__ __forceinline__ uint2
ld_global_nc_no_allocate_v2(const void* address) {
  uint2 value;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "l"(address));
  return value;
}

// 16 bytes of the same kind.
__device__ __forceinline__ uint4
ld_global_nc_no_allocate_v4(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

// 16 bytes that are read once, if `on`; otherwise `value` stays. Unlike a branch it is
// no reason to wait for the load.
__device__ __forceinline__ void ld_global_cs_v4_if(uint4& value,
                                                   const void* address,
                                                   bool on) {
  asm volatile(
      "{\n"
      ".reg .pred on;\n"
      "setp.ne.u32 on, %5, 0;\n"
      "@on ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(address), "r"(static_cast<uint32_t>(on)));
}

// 16 bytes by one instruction, also where nvcc makes four of the assignment.
__device__ __forceinline__ void st_global_v4(void* address,
                                             const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// Scale codes: neighbours in the same sector follow soon.
__device__ __forceinline__ uint32_t ld_global_nc_u16(const void* address) {
  uint16_t value;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ uint32_t ld_global_nc_u8(const void* address) {
  uint32_t value;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}

// Cache policy of what is read once: it shall not push code and activations out of
// the L2.
__device__ __forceinline__ uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// The same. From sm_90 on it is a constant, which needs no registers (CUTLASS's
// CacheHintSm90 has it; tests/contract_gpu_test.cc compares it).
__device__ __forceinline__ uint64_t evict_first() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return 0x12F0000000000000;
#else
  return createpolicy_evict_first();
#endif
}

// Asynchronous copies of what is read once into shared memory, past the L1, in
// groups. Addresses of shared memory are 32-bit.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2;" ::
          "r"(shared),
      "l"(global), "l"(policy)
      : "memory");
}
// The same, asking the L2 for 128 bytes a miss instead of 256.
__device__ __forceinline__ void cp_async_16_of_row(uint32_t shared,
                                                   const void* global,
                                                   uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::
          "r"(shared),
      "l"(global), "l"(policy)
      : "memory");
}
// The same of what is read again: by other blocks, or the rest of its line later.
__device__ __forceinline__ void cp_async_16(uint32_t shared,
                                            const void* global) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared),
      "l"(global)
      : "memory");
}

// The first, or zeros.
__device__ __forceinline__ void cp_async_16_or_zero(uint32_t shared,
                                                    const void* global,
                                                    bool here,
                                                    uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, "
      "%3;" ::"r"(shared),
      "l"(global), "r"(here ? 16 : 0), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void cp_async_4(uint32_t shared,
                                           const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ uint4 ld_shared_v4(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
// From any memory, if `on`; else the value stays as it is. From sm_90 on in its place
// among the tensor core's instructions (the compiler gathers loads behind branches);
// before, there are no registers for that.
__device__ __forceinline__ void ld_v4_if(uint4& value, const void* address,
                                         bool on) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred on;\n"
      "setp.ne.u32 on, %5, 0;\n"
      "@on ld.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(address), "r"(static_cast<uint32_t>(on)));
#else
  if (on) value = *static_cast<const uint4*>(address);
#endif
}
__device__ __forceinline__ uint2 ld_shared_v2(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "r"(address));
  return value;
}
__device__ __forceinline__ uint32_t ld_shared_u32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}
__device__ __forceinline__ uint32_t ld_shared_u16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return value;
}

__device__ __forceinline__ void st_shared_u16(uint32_t address,
                                              uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}
__device__ __forceinline__ void st_shared_u32(uint32_t address,
                                              uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void st_shared_v4(uint32_t address, float a, float b,
                                             float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
__device__ __forceinline__ float4 ld_shared_v4_f32(uint32_t address) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ uint32_t dynamic_shared_bytes() {
  uint32_t bytes;
  asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

// What another warp may have changed.
__device__ __forceinline__ uint32_t
ld_volatile_shared_u32(const uint32_t* pointer) {
  uint32_t value;
  asm volatile("ld.volatile.shared.u32 %0, [%1];"
               : "=r"(value)
               : "r"(shared_address(pointer))
               : "memory");
  return value;
}

// From here on the compiler does not know where the value comes from.
__device__ __forceinline__ void forget(uint32_t& value) {
  asm volatile("" : "+r"(value));
}

// Bring a line into the L1, or into the L2 alone.
__device__ __forceinline__ void prefetch_global_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}
__device__ __forceinline__ void prefetch_global_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// a b + c on two bf16, each rounded once.
__device__ __forceinline__ uint32_t fma_rn_bf16x2(uint32_t a, uint32_t b,
                                                  uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// a b on two bf16, each rounded once; the same bits by either instruction.
__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t d;
  asm("mul.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#else
  return fma_rn_bf16x2(a, b, 0x80008000u);
#endif
}

// Two float32 to bf16, nearest even, every NaN 0x7FFF.
__device__ __forceinline__ uint32_t cvt_rn_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

// 1 / a within an ulp.
__device__ __forceinline__ float rcp_approx_ftz(float a) {
  float d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
  return d;
}

// Lets the nodes after this one start, up to their wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the nodes before this one are complete and their writes can be
// seen. Nothing of theirs is read and nothing is written earlier. Below sm_90
// the node starts only then anyway.
//
// A build with --define=moeplan_delayed_writes=1 lets every node's successors start
// at once and its own writes come 100 us later: a node that reads before its wait
// shows it.
__device__ __forceinline__ void griddepcontrol_wait() {
#if defined(MOEP_DELAYED_WRITES)
  griddepcontrol_launch_dependents();
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#if defined(MOEP_DELAYED_WRITES)
  __nanosleep(100000);
#endif
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_PTX_SM80_CUH_
