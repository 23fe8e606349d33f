// wgmma: [64, 16] times [16, N], bf16, float32 accumulators; b in shared memory, a there
// or in registers; see wgmma_sm90.cuh. The numbers of operands are spelled out, since
// inline assembly has no lists.

#ifndef MOEPLAN_KERNELS_WGMMA_BF16_SM90_CUH_
#define MOEPLAN_KERNELS_WGMMA_BF16_SM90_CUH_

#include "kernels/wgmma_sm90.cuh"

namespace moep {

// d [64, kN] += a [64, 16] b [16, kN]. Of a warp's 16 rows of a, a lane holds what
// mma_m16n8k16_bf16 gives it.
template <int kN>
__device__ void wgmma_bf16(float (&d)[kN / 2], const uint32_t* a, uint64_t b);

// The same, a by its descriptor.
template <int kN>
__device__ void wgmma_bf16(float (&d)[kN / 2], uint64_t a, uint64_t b);

#define MOEP_P4(a, b, c, d) "%" #a ", %" #b ", %" #c ", %" #d
#define MOEP_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOEP_D8(i) MOEP_D4(i), MOEP_D4(i + 4)
#define MOEP_D16(i) MOEP_D8(i), MOEP_D8(i + 8)
#define MOEP_D32(i) MOEP_D16(i), MOEP_D16(i + 16)
#define MOEP_L8 MOEP_P4(0, 1, 2, 3) ", " MOEP_P4(4, 5, 6, 7)
#define MOEP_L16 MOEP_L8 ", " MOEP_P4(8, 9, 10, 11) ", " MOEP_P4(12, 13, 14, 15)
#define MOEP_L24 \
  MOEP_L16 ", " MOEP_P4(16, 17, 18, 19) ", " MOEP_P4(20, 21, 22, 23)
#define MOEP_L32 \
  MOEP_L24 ", " MOEP_P4(24, 25, 26, 27) ", " MOEP_P4(28, 29, 30, 31)
#define MOEP_L40 \
  MOEP_L32 ", " MOEP_P4(32, 33, 34, 35) ", " MOEP_P4(36, 37, 38, 39)
#define MOEP_L48 \
  MOEP_L40 ", " MOEP_P4(40, 41, 42, 43) ", " MOEP_P4(44, 45, 46, 47)
#define MOEP_L56 \
  MOEP_L48 ", " MOEP_P4(48, 49, 50, 51) ", " MOEP_P4(52, 53, 54, 55)
#define MOEP_L64 \
  MOEP_L56 ", " MOEP_P4(56, 57, 58, 59) ", " MOEP_P4(60, 61, 62, 63)
#define MOEP_L80                                                          \
  MOEP_L64                                                                \
  ", " MOEP_P4(64, 65, 66, 67) ", " MOEP_P4(68, 69, 70, 71) ", " MOEP_P4( \
      72, 73, 74, 75) ", " MOEP_P4(76, 77, 78, 79)
#define MOEP_L88 \
  MOEP_L80 ", " MOEP_P4(80, 81, 82, 83) ", " MOEP_P4(84, 85, 86, 87)
#define MOEP_L104                                                         \
  MOEP_L88                                                                \
  ", " MOEP_P4(88, 89, 90, 91) ", " MOEP_P4(92, 93, 94, 95) ", " MOEP_P4( \
      96, 97, 98, 99) ", " MOEP_P4(100, 101, 102, 103)
#define MOEP_L116                                          \
  MOEP_L104 ", " MOEP_P4(104, 105, 106, 107) ", " MOEP_P4( \
      108, 109, 110, 111) ", " MOEP_P4(112, 113, 114, 115)
#define MOEP_L128                                          \
  MOEP_L116 ", " MOEP_P4(116, 117, 118, 119) ", " MOEP_P4( \
      120, 121, 122, 123) ", " MOEP_P4(124, 125, 126, 127)

// n: columns; the names of d; the numbers of a[0..3] and b among the operands; d.
#define MOEP_WGMMA(n, list, a0, a1, a2, a3, desc, ...)                       \
  template <>                                                                \
  __device__ __forceinline__ void wgmma_bf16<n>(                             \
      float(&d)[n / 2], const uint32_t* a, uint64_t b) {                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n                      \
                 "k16.f32.bf16.bf16 {" list                                  \
                 "}, {" MOEP_P4(a0, a1, a2, a3) "}, %" #desc ", 1, 1, 1, 0;" \
                 : __VA_ARGS__                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));      \
  }

MOEP_WGMMA(8, MOEP_P4(0, 1, 2, 3), 4, 5, 6, 7, 8, MOEP_D4(0))
MOEP_WGMMA(16, MOEP_L8, 8, 9, 10, 11, 12, MOEP_D8(0))
MOEP_WGMMA(32, MOEP_L16, 16, 17, 18, 19, 20, MOEP_D16(0))
MOEP_WGMMA(48, MOEP_L24, 24, 25, 26, 27, 28, MOEP_D16(0), MOEP_D8(16))
MOEP_WGMMA(64, MOEP_L32, 32, 33, 34, 35, 36, MOEP_D32(0))
MOEP_WGMMA(80, MOEP_L40, 40, 41, 42, 43, 44, MOEP_D32(0), MOEP_D8(32))
MOEP_WGMMA(96, MOEP_L48, 48, 49, 50, 51, 52, MOEP_D32(0), MOEP_D16(32))
MOEP_WGMMA(112, MOEP_L56, 56, 57, 58, 59, 60, MOEP_D32(0), MOEP_D16(32),
           MOEP_D8(48))
MOEP_WGMMA(128, MOEP_L64, 64, 65, 66, 67, 68, MOEP_D32(0), MOEP_D32(32))
MOEP_WGMMA(176, MOEP_L88, 88, 89, 90, 91, 92, MOEP_D32(0), MOEP_D32(32),
           MOEP_D16(64), MOEP_D8(80))
MOEP_WGMMA(232, MOEP_L116, 116, 117, 118, 119, 120, MOEP_D32(0), MOEP_D32(32),
           MOEP_D32(64), MOEP_D16(96), MOEP_D4(112))
MOEP_WGMMA(256, MOEP_L128, 128, 129, 130, 131, 132, MOEP_D32(0), MOEP_D32(32),
           MOEP_D32(64), MOEP_D32(96))

// n: columns; the names of d; the numbers of a and b among the operands; d.
#define MOEP_WGMMA_SHARED(n, list, a_desc, b_desc, ...)                       \
  template <>                                                                 \
  __device__ __forceinline__ void wgmma_bf16<n>(float(&d)[n / 2], uint64_t a, \
                                                uint64_t b) {                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n                       \
                 "k16.f32.bf16.bf16 {" list "}, %" #a_desc ", %" #b_desc      \
                 ", 1, 1, 1, 0, 0;"                                           \
                 : __VA_ARGS__                                                \
                 : "l"(a), "l"(b));                                           \
  }

MOEP_WGMMA_SHARED(64, MOEP_L32, 32, 33, MOEP_D32(0))
MOEP_WGMMA_SHARED(128, MOEP_L64, 64, 65, MOEP_D32(0), MOEP_D32(32))
MOEP_WGMMA_SHARED(256, MOEP_L128, 128, 129, MOEP_D32(0), MOEP_D32(32),
                  MOEP_D32(64), MOEP_D32(96))

#undef MOEP_WGMMA_SHARED
#undef MOEP_WGMMA
#undef MOEP_L128
#undef MOEP_L116
#undef MOEP_L104
#undef MOEP_L88
#undef MOEP_L80
#undef MOEP_L64
#undef MOEP_L56
#undef MOEP_L48
#undef MOEP_L40
#undef MOEP_L32
#undef MOEP_L24
#undef MOEP_L16
#undef MOEP_L8
#undef MOEP_D32
#undef MOEP_D16
#undef MOEP_D8
#undef MOEP_D4
#undef MOEP_P4

}  // namespace moep

#endif  // MOEPLAN_KERNELS_WGMMA_BF16_SM90_CUH_
