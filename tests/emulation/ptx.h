// What kernels/ptx_sm80.cuh, mbarrier_sm90.cuh, tma_sm90.cuh, wgmma_sm90.cuh,
// wgmma_bf16_sm90.cuh and launch.cuh are to an emulated kernel: the functions of these
// files that the kernels of this folder call. Included before a kernel's source, it
// takes their place.

#ifndef MOEPLAN_TESTS_EMULATION_PTX_H_
#define MOEPLAN_TESTS_EMULATION_PTX_H_

#define MOEPLAN_KERNELS_PTX_SM80_CUH_
#define MOEPLAN_KERNELS_MBARRIER_SM90_CUH_
#define MOEPLAN_KERNELS_TMA_SM90_CUH_
#define MOEPLAN_KERNELS_WGMMA_SM90_CUH_
#define MOEPLAN_KERNELS_WGMMA_BF16_SM90_CUH_
#define MOEPLAN_KERNELS_LAUNCH_CUH_

#include "kernels/scalar.h"
#include "tests/emulation/device.h"
#include "tests/emulation/fibers.h"

namespace moep {

/* ---- ptx_sm80.cuh ---- */

inline void griddepcontrol_wait() {}
inline void griddepcontrol_launch_dependents() {}
inline uint64_t evict_first() { return 0; }

inline void emulated_copy(uint32_t to, const void* from, uint32_t bytes) {
  emulation::Require(reinterpret_cast<uintptr_t>(from) % bytes == 0 &&
                         to % bytes == 0 &&
                         to + bytes <= emulation::kSharedBytes,
                     "a copy's addresses");
  emulation::Copy(to, from, bytes);
}
inline void cp_async_16(uint32_t to, const void* from, uint64_t) {
  emulated_copy(to, from, 16);
}
inline void cp_async_16(uint32_t to, const void* from) {
  emulated_copy(to, from, 16);
}
inline void cp_async_16_of_row(uint32_t to, const void* from, uint64_t) {
  emulated_copy(to, from, 16);
}
inline void cp_async_16_or_zero(uint32_t to, const void* from, bool here,
                                uint64_t) {
  static const uint4 zeros = {0, 0, 0, 0};
  emulated_copy(to, here ? from : &zeros, 16);
}
inline void cp_async_4(uint32_t to, const void* from) {
  emulated_copy(to, from, 4);
}
inline void cp_async_commit_group() { emulation::CommitCopies(); }
template <int kPending>
void cp_async_wait_group() {
  emulation::WaitCopies(kPending);
}

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) -
                               emulation::Self().shared);
}
template <typename T>
T emulated_load(uint32_t address) {
  emulation::Require(address % sizeof(T) == 0 &&
                         address + sizeof(T) <= emulation::kSharedBytes,
                     "a load's address");
  T value;
  std::memcpy(&value, emulation::Self().shared + address, sizeof(T));
  return value;
}
template <typename T>
void emulated_store(uint32_t address, T value) {
  emulation::Require(address % sizeof(T) == 0 &&
                         address + sizeof(T) <= emulation::kSharedBytes,
                     "a store's address");
  std::memcpy(emulation::Self().shared + address, &value, sizeof(T));
}
inline uint4 ld_shared_v4(uint32_t address) {
  return emulated_load<uint4>(address);
}
inline float4 ld_shared_v4_f32(uint32_t address) {
  return emulated_load<float4>(address);
}
inline uint2 ld_shared_v2(uint32_t address) {
  return emulated_load<uint2>(address);
}
inline uint32_t ld_shared_u32(uint32_t address) {
  return emulated_load<uint32_t>(address);
}
inline uint32_t ld_shared_u16(uint32_t address) {
  return emulated_load<uint16_t>(address);
}
inline void st_shared_u16(uint32_t address, uint16_t value) {
  emulated_store(address, value);
}
inline void st_shared_u32(uint32_t address, uint32_t value) {
  emulated_store(address, value);
}
inline void st_shared_v4(uint32_t address, float a, float b, float c, float d) {
  emulated_store(address, make_float4(a, b, c, d));
}

template <typename T>
T emulated_global(const void* address) {
  emulation::Require(reinterpret_cast<uintptr_t>(address) % sizeof(T) == 0,
                     "a load's address");
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}
inline void ld_global_cs_v4_if(uint4& value, const void* address, bool on) {
  if (on) value = emulated_global<uint4>(address);
}
inline void ld_v4_if(uint4& value, const void* address, bool on) {
  if (on) value = emulated_global<uint4>(address);
}
inline void st_global_v4(void* address, const uint4& value) {
  emulation::Require(reinterpret_cast<uintptr_t>(address) % 16 == 0,
                     "a store's address");
  std::memcpy(address, &value, 16);
}

inline uint4 ld_global_nc_no_allocate_v4(const void* address) {
  return emulated_global<uint4>(address);
}
inline uint2 ld_global_nc_no_allocate_v2(const void* address) {
  return emulated_global<uint2>(address);
}
inline uint32_t ld_global_nc_u16(const void* address) {
  return emulated_global<uint16_t>(address);
}
inline uint32_t ld_global_nc_u8(const void* address) {
  return emulated_global<uint8_t>(address);
}
inline void prefetch_global_l1(const void*) {}
inline void prefetch_global_l2(const void*) {}
inline void forget(uint32_t&) {}
inline uint32_t ld_volatile_shared_u32(const uint32_t* address) {
  emulation::Yield();
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
// Of the launch.
inline uint32_t emulated_shared_bytes;
inline uint32_t dynamic_shared_bytes() { return emulated_shared_bytes; }
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                              const uint32_t (&b)[2]) {
  emulation::Mma(d, a, b);
}

inline uint32_t cvt_rn_bf16x2(float low, float high) {
  return moep_bf16_from_float(low) | uint32_t{moep_bf16_from_float(high)} << 16;
}
inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  const auto half = [](uint32_t word, int i) {
    return moep_bf16_to_float(static_cast<uint16_t>(word >> (16 * i)));
  };
  return cvt_rn_bf16x2(half(a, 0) * half(b, 0), half(a, 1) * half(b, 1));
}
inline float rcp_approx_ftz(float value) { return 1.0f / value; }

/* ---- mbarrier_sm90.cuh ---- */

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  emulation::BarrierInit(barrier, arrivals);
}
inline void fence_mbarrier_init() {}
inline void fence_proxy_async() {}
inline void mbarrier_arrive(uint32_t barrier) {
  emulation::BarrierArrive(barrier);
}
inline void mbarrier_arrive_if(uint32_t barrier, bool on) {
  if (on) mbarrier_arrive(barrier);
}
inline void mbarrier_arrive_cluster_if(uint32_t barrier, uint32_t rank,
                                       bool on) {
  if (on) emulation::BarrierArriveAt(rank, barrier);
}
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  emulation::BarrierExpect(barrier, bytes);
}
inline void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  emulation::FinishCopies();
  emulation::BarrierArrive(barrier);
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  emulation::BarrierWait(barrier, parity);
}

/* ---- tma_sm90.cuh ---- */

inline void barrier_cluster() { emulation::SyncCluster(); }
inline void cp_async_bulk_multicast(uint32_t to, const void* from,
                                    uint32_t bytes, uint32_t barrier,
                                    uint32_t blocks) {
  emulation::Require(reinterpret_cast<uintptr_t>(from) % 16 == 0 &&
                         to % 16 == 0 && bytes % 16 == 0 && bytes != 0 &&
                         to + bytes <= emulation::kSharedBytes,
                     "a bulk copy's addresses");
  emulation::CopyBulk(to, from, bytes, barrier, blocks);
}
inline void cp_async_bulk(uint32_t to, const void* from, uint32_t bytes,
                          uint32_t barrier) {
  cp_async_bulk_multicast(to, from, bytes, barrier, emulation::OwnBit());
}
// A map of the emulation: address, rows, bytes of a row.
inline void cp_async_bulk_tensor(uint32_t to, const void* map, uint32_t column,
                                 uint32_t row, uint32_t barrier, uint64_t) {
  constexpr uint32_t kRows = MOEP_MAP_BOX_ROWS, kBytes = MOEP_MAP_BOX_BYTES;
  uint64_t words[3];
  std::memcpy(words, map, sizeof(words));
  emulation::Require(
      reinterpret_cast<uintptr_t>(map) % MOEP_MAP_ALIGNMENT == 0 &&
          to % 1024 == 0 && words[0] % 16 == 0 && words[2] % 16 == 0,
      "a box's addresses");
  static const uint4 zeros = {0, 0, 0, 0};
  const auto* data = reinterpret_cast<const uint8_t*>(words[0]);
  for (uint32_t r = 0; r < kRows; r++) {
    for (uint32_t at = 0; at < kBytes; at += 16) {
      const bool here = row + r < words[1] && column + at < words[2];
      const uint64_t from = (row + r) * words[2] + column + at;
      cp_async_bulk(to + r * kBytes + (at ^ r % 8 * 16),
                    here ? data + from : static_cast<const void*>(&zeros), 16,
                    barrier);
    }
  }
}
inline void fence_proxy_tensormap_acquire(const void*) {}
inline void barrier_sync(uint32_t name, uint32_t threads) {
  emulation::NamedBarrier(name, threads);
}
template <int kRegisters>
void setmaxnreg_inc() {}
template <int kRegisters>
void setmaxnreg_dec() {}

/* ---- wgmma_sm90.cuh, wgmma_bf16_sm90.cuh ---- */

inline uint64_t wgmma_descriptor(uint32_t address) {
  emulation::Require(address % 1024 == 0, "a tile's address");
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16 |
         address >> 4;
}
constexpr uint64_t kWgmmaStep = 32 >> 4;
inline void wgmma_fence() {}
inline void wgmma_commit_group() { emulation::WgmmaCommit(); }
template <int kPending>
void wgmma_wait_group() {
  emulation::WgmmaWait(kPending);
}
template <typename Sums>
void wgmma_hold(Sums&) {}
template <int kN>
void wgmma_bf16(float (&d)[kN / 2], const uint32_t* a, uint64_t b) {
  emulation::Wgmma(d, kN, a, b);
}

/* ---- launch.cuh ---- */

struct Blocks {
  bool cooperative = false;
  uint32_t cluster = 1;
};
template <typename Args>
cudaError_t launch(void (*kernel)(Args), const Args& args,
                   const moep_launch& launch, uint32_t threads,
                   size_t shared_bytes, cudaStream_t,
                   const Blocks& blocks = {}) {
  emulation::Require(shared_bytes <= launch.shared_bytes, "shared memory");
  emulated_shared_bytes = static_cast<uint32_t>(shared_bytes);
  const uint32_t all = launch.grid[0] * launch.grid[1];
  emulation::Launch(all, threads, blocks.cooperative ? all : blocks.cluster,
                    [&] { kernel(args); });
  return cudaSuccess;
}
template <typename Args>
cudaError_t load(void (*)(Args)) {
  return cudaSuccess;
}

}  // namespace moep

// What a kernel declares as the extern array `memory` is its block's shared memory by a
// macro of this function: in such a file nothing else may have that name.
namespace {
uint8_t (*block_memory())[] {
  return reinterpret_cast<uint8_t(*)[]>(emulation::Self().shared);
}
}  // namespace

#endif  // MOEPLAN_TESTS_EMULATION_PTX_H_
