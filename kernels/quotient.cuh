// Division of small numbers in few instructions: the general one takes some twenty, and
// code that runs once is read from memory.

#ifndef MOEPLAN_KERNELS_QUOTIENT_CUH_
#define MOEPLAN_KERNELS_QUOTIENT_CUH_

#include <stdint.h>

namespace moep {

// A divisor that the host knows.
struct Divisor {
  uint32_t value;
  uint32_t inverse;  // 2^32 / value, rounded up; 0 of 1
};

// value: not 0.
__host__ __device__ __forceinline__ Divisor divisor_of(uint32_t value) {
  const uint64_t inverse = ((uint64_t{1} << 32) + value - 1) / value;
  return {value, static_cast<uint32_t>(inverse)};
}

// n / value, for n x value < 2^32: the inverse is less than 1 too large, which makes less
// than 1 / value of n x inverse / 2^32.
__device__ __forceinline__ uint32_t quotient(uint32_t n, const Divisor& by) {
  return by.inverse == 0
             ? n
             : static_cast<uint32_t>(uint64_t{n} * by.inverse >> 32);
}

// n / d of numbers below 2^20, d not 0, exactly: (n + 1/2) / d is 1 / 2d or more from
// integers, and the approximate quotient is wrong by 2 ulp at most, less than 1 / 4d.
__device__ __forceinline__ uint32_t small_quotient(uint32_t n, uint32_t d) {
  return static_cast<uint32_t>(
      __fdividef(static_cast<float>(n) + 0.5f, static_cast<float>(d)));
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_QUOTIENT_CUH_
