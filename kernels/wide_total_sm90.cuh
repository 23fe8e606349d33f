// The totals of a half tile over the segments of K, and its way to the warp that
// stores it. Both use the warpgroup's part of the shared memory, one after the
// other.

#ifndef MOEPLAN_KERNELS_WIDE_TOTAL_SM90_CUH_
#define MOEPLAN_KERNELS_WIDE_TOTAL_SM90_CUH_

#include "kernels/wide_sm90.cuh"

namespace moep {

// Named barriers: the words of half 0, 1 are written; they are read; a warpgroup
// alone.
constexpr uint32_t kWideWritten = 1, kWideRead = 3, kWideGroup = 5;
constexpr uint32_t kWideExchange = 128 + 32;  // threads of the first two

// Where word `column` (0..31) of a row lies: 8 words at a time, swizzled so that
// the lanes of a warp that hold one column of 8 rows are in different banks.
__device__ __forceinline__ uint32_t wide_word(uint32_t row, uint32_t column) {
  return row * 128 + ((column / 8 ^ row / 2 % 4) * 8 + column % 8) * 4;
}

// Totals over the segments of K: of the first kKept sums of a thread in
// registers, of the others in shared memory.
template <uint32_t N>
struct WideTotals {
  float kept[Wide<N>::kKept];
  uint32_t at;  // this thread's in shared memory

  // After the first segment, and after a later one but the last: the sums go to
  // the totals.
  __device__ __forceinline__ void set(const float (&sum)[Wide<N>::kSums]) {
#pragma unroll
    for (uint32_t i = 0; i < Wide<N>::kKept; i++) kept[i] = sum[i];
#pragma unroll
    for (uint32_t i = Wide<N>::kKept; i < Wide<N>::kSums; i += 4) {
      st_shared_v4(place(i), sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
    }
  }
  __device__ __forceinline__ void add(const float (&sum)[Wide<N>::kSums]) {
#pragma unroll
    for (uint32_t i = 0; i < Wide<N>::kKept; i++) {
      kept[i] = __fadd_rn(kept[i], sum[i]);
    }
#pragma unroll
    for (uint32_t i = Wide<N>::kKept; i < Wide<N>::kSums; i += 4) {
      const float4 total = ld_shared_v4_f32(place(i));
      st_shared_v4(
          place(i), __fadd_rn(total.x, sum[i]), __fadd_rn(total.y, sum[i + 1]),
          __fadd_rn(total.z, sum[i + 2]), __fadd_rn(total.w, sum[i + 3]));
    }
  }

  // After the last: the totals go to the sums.
  __device__ __forceinline__ void finish(float (&sum)[Wide<N>::kSums]) const {
#pragma unroll
    for (uint32_t i = 0; i < Wide<N>::kKept; i++) {
      sum[i] = __fadd_rn(kept[i], sum[i]);
    }
#pragma unroll
    for (uint32_t i = Wide<N>::kKept; i < Wide<N>::kSums; i += 4) {
      const float4 total = ld_shared_v4_f32(place(i));
      sum[i] = __fadd_rn(total.x, sum[i]);
      sum[i + 1] = __fadd_rn(total.y, sum[i + 1]);
      sum[i + 2] = __fadd_rn(total.z, sum[i + 2]);
      sum[i + 3] = __fadd_rn(total.w, sum[i + 3]);
    }
  }

  // Of sums i .. i + 3, side by side for the threads of a warpgroup.
  __device__ __forceinline__ uint32_t place(uint32_t i) const {
    return at + (i - Wide<N>::kKept) * 512;
  }
};

// The half tile's sums over all of K. The words may be overwritten when it
// returns: the warp that stores has read what was there (`waits`: there was
// something), and so have the warpgroup's threads.
template <uint32_t N>
__device__ __forceinline__ void wide_sum_tile(WideRing<N>& ring, uint32_t words,
                                              float (&sum)[Wide<N>::kSums],
                                              uint32_t k, bool waits) {
  const uint32_t half = threadIdx.x / 128 - 1;
  constexpr uint32_t kSteps = MOEP_SEGMENT_K / kWideStageK;
  WideTotals<N> totals;
  totals.at = words + threadIdx.x % 128 * 16;
  for (uint32_t left = k / kWideStageK, steps; left != 0; left -= steps) {
    const bool first = left == k / kWideStageK;
    steps = min(left, kSteps);
    wide_multiply<N>(ring, sum, steps);
    if (first && waits) barrier_sync(kWideRead + half, kWideExchange);
    if (left == steps) {
      if (!first) totals.finish(sum);
    } else if (first) {
      totals.set(sum);
    } else {
      totals.add(sum);
    }
  }
  if (Wide<N>::kKept < Wide<N>::kSums) barrier_sync(kWideGroup + half, 128);
}

// Give the sums to the warp that stores, rounded: a word is rows g (low) and
// g + 8 (high) of one m16.
template <uint32_t N>
__device__ __forceinline__ void wide_hand_over(uint32_t words,
                                               float (&sum)[Wide<N>::kSums]) {
  const uint32_t half = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
  const uint32_t column = threadIdx.x / 32 % 4 * 8 + lane / 4;
#pragma unroll
  for (uint32_t i = 0; i < Wide<N>::kSums; i += 4) {
    const uint32_t row = i * 2 + lane % 4 * 2;
    st_shared_u32(words + wide_word(row, column),
                  cvt_rn_bf16x2(sum[i], sum[i + 2]));
    st_shared_u32(words + wide_word(row + 1, column),
                  cvt_rn_bf16x2(sum[i + 1], sum[i + 3]));
  }
  barrier_arrive(kWideWritten + half, kWideExchange);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_WIDE_TOTAL_SM90_CUH_
