// to[i] = word(first_word + i), and a sum over from[...] that nobody needs.
//
// Memory-bound. The read is the yardstick of `moeplan bench`: 16-byte loads, 8 of
// them in flight per thread, 1024 threads per SM in two blocks (one block of 512
// reaches 3.7 of the H200's 4.54 TB/s).

#include "tools/stream.h"

namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kBlocksPerSm = 2;
constexpr uint32_t kInFlight = 8;
constexpr uint32_t kMaxFillBlocks = 4096;
constexpr uint32_t kMagic = 0x9E3779B9;

__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint4* to, uint64_t count, tool_words kind, uint64_t first) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += stride) {
    const uint64_t word = first + 4 * i;
    to[i] = make_uint4(
        tool_random_word(kind, word), tool_random_word(kind, word + 1),
        tool_random_word(kind, word + 2), tool_random_word(kind, word + 3));
  }
}

__device__ __forceinline__ uint32_t fold(const uint4& v) {
  return v.x ^ v.y ^ v.z ^ v.w;
}

// The loop's bound is the same for a whole block.
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    read_kernel(const uint4* from, uint64_t count, uint32_t* sink) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  uint64_t first = uint64_t{blockIdx.x} * kThreads;
  uint32_t sum = 0;
  for (; first + (kInFlight - 1) * stride + kThreads <= count;
       first += kInFlight * stride) {
    const uint4* at = from + first + threadIdx.x;
    uint4 loaded[kInFlight];
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; j++) loaded[j] = at[j * stride];
    // Else the compiler saves registers and waits for the first loads before it
    // issues the last.
    __syncwarp();
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; j++) sum ^= fold(loaded[j]);
  }
  for (uint64_t i = first + threadIdx.x; i < count; i += stride) {
    sum ^= fold(from[i]);
  }
  if (sum == kMagic) *sink = sum;
}

}  // namespace

cudaError_t tool_stream_fill(void* to, size_t bytes, enum tool_words kind,
                             uint64_t first_word, cudaStream_t stream) {
  const uint64_t count = bytes / sizeof(uint4);
  const uint64_t whole = (count + kThreads - 1) / kThreads;
  const dim3 grid(whole < kMaxFillBlocks ? whole : kMaxFillBlocks);
  if (count == 0) return cudaSuccess;
  fill_kernel<<<grid, kThreads, 0, stream>>>(static_cast<uint4*>(to), count,
                                             kind, first_word);
  return cudaGetLastError();
}

cudaError_t tool_stream_read(const void* from, size_t bytes, uint32_t blocks,
                             uint32_t* sink, cudaStream_t stream) {
  read_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                               bytes / sizeof(uint4), sink);
  return cudaGetLastError();
}
