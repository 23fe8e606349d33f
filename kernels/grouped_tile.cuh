// A block's tile of a grouped projection: 64 tokens times 256 rows of NVFP4 weights.
// The weights are dequantized in registers, 32 rows a warp, and every operand meets
// up to 8 n8 tiles of tokens, which pass through shared memory in p order.

#ifndef MOEPLAN_KERNELS_GROUPED_TILE_CUH_
#define MOEPLAN_KERNELS_GROUPED_TILE_CUH_

#include "kernels/grouped_work.cuh"
#include "kernels/nvfp4_gemv.cuh"

namespace moep {
namespace grouped {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kThreads = kWarps * 32;
constexpr uint32_t kTokens = 64;
constexpr uint32_t kM = 2;  // m16 tiles of a warp
constexpr uint32_t kStages = 4;
constexpr uint32_t kRow = MOEP_BLOCK_K * 2;  // bytes of a token in a stage
constexpr uint32_t kStageBytes = kTokens * kRow;
constexpr uint32_t kSharedBytes = kStages * kStageBytes;

// Columns of an m16 tile: 8 rows of gate and 8 of up, or 16 of down.
struct Up {
  static constexpr bool kIsUp = true;
  static constexpr uint32_t kColumns = 8;
  static constexpr uint32_t kBlockColumns = kColumns * kM * kWarps;
};
struct Down {
  static constexpr bool kIsUp = false;
  static constexpr uint32_t kColumns = 16;
  static constexpr uint32_t kBlockColumns = kColumns * kM * kWarps;
};

// Of an expert, low and high half.
struct Matrices {
  const uint8_t* weight[2];
  const uint8_t* scale[2];
};

struct Shared {
  Matrices matrices;
  uint32_t before[MOEP_MAX_EXPERTS + 1];
  int32_t slots[kTokens];
};

// Sizes of one projection: columns of output, k, and bytes between tokens.
template <typename P>
struct Sizes {
  uint32_t columns, k, token_bytes;
};
template <typename P>
__device__ __forceinline__ Sizes<P> sizes_of(const moep_grouped_args& args) {
  const uint32_t columns = P::kIsUp ? args.inter : args.hidden;
  const uint32_t k = P::kIsUp ? args.hidden : args.inter;
  return {columns, k, moep_padded_k(k) * 2};
}

// 16-byte chunk of a token in a stage: 8 tokens of one chunk lie in different
// banks. Stages begin at multiples of kRow, so the chunk's other bits can be added
// by an exclusive or.
__device__ __forceinline__ uint32_t chunk_at(uint32_t token, uint32_t chunk) {
  return token * kRow + (chunk ^ token % 8) * 16;
}

// What a thread copies: every fourth chunk of one token.
struct TokenSource {
  const uint8_t* from;  // its first chunk; null: no token
  uint32_t left;        // k
};

template <typename P>
__device__ __forceinline__ TokenSource
token_source(const moep_grouped_args& args, const GroupedWork& work,
             const int32_t* slots) {
  const Sizes<P> sizes = sizes_of<P>(args);
  const uint32_t token = threadIdx.x / 4;
  if (token >= work.tokens) return {nullptr, 0};
  const uint64_t row = P::kIsUp
                           ? static_cast<uint32_t>(slots[token]) / args.topk
                           : work.position + token;
  const uint16_t* rows = P::kIsUp ? args.xp : args.h;
  return {reinterpret_cast<const uint8_t*>(rows) + row * sizes.token_bytes +
              threadIdx.x % 4 * 16,
          moep_padded_k(sizes.k)};
}

// A block of 128 k of the tokens; one group of copies in any case.
__device__ __forceinline__ void copy_stage(TokenSource& source,
                                           uint32_t stage) {
  if (source.left != 0) {
    const uint32_t to = stage + chunk_at(threadIdx.x / 4, threadIdx.x % 4);
#pragma unroll
    for (uint32_t i = 0; i < kRow / 64; i++) {
      cp_async_16(to ^ i * 64, source.from + i * 64);
    }
    source.from += kRow;
    source.left -= MOEP_BLOCK_K;
  }
  cp_async_commit_group();
}

// Where the rows of the low and the high half of an m16 tile lie: matrices, and
// how many rows the high half is further on.
template <typename P>
__device__ __forceinline__ Matrices matrices_of(const moep_expert& expert) {
  const moep_nvfp4& low = P::kIsUp ? expert.gate : expert.down;
  const moep_nvfp4& high = P::kIsUp ? expert.up : expert.down;
  return {{low.weight, high.weight}, {low.scale, high.scale}};
}
template <typename P>
constexpr uint32_t kHighRows = P::kIsUp ? 0 : 8;

// A lane's part of a block of each m16 tile; `at`: of its row g of the first
// tile, in bytes of weights, an eighth of that in bytes of scales.
template <typename P>
__device__ __forceinline__ void load_block(const Matrices& matrices,
                                           uint32_t at, uint32_t k,
                                           int32_t left, uint32_t tiles,
                                           NvBlock (&out)[kM]) {
#pragma unroll
  for (uint32_t m = 0; m < kM; m++) {
    if (m >= tiles) break;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
      const uint32_t rows = m * P::kColumns + half * kHighRows<P>;
      const uint32_t own = at + rows * (k / 2);
      nv_load_row(matrices.weight[half] + own, matrices.scale[half] + own / 8,
                  left, k % 32 == 0, out[m].weight[half], out[m].scale[half]);
    }
  }
}

// Step s (0, 1) of word j of a block: this lane's operands of an m16 tile.
__device__ __forceinline__ void operands_of(const NvBlock& block,
                                            const uint32_t (&scale)[2][2],
                                            int j, uint32_t s,
                                            uint32_t (&a)[4]) {
#pragma unroll
  for (uint32_t half = 0; half < 2; half++) {
    const moep_e2m1_pairs pairs =
        moep_unpack_e2m1(word_of(block.weight[half], j));
    a[half] = mul_bf16x2(pairs.pair[s * 2], scale[half][j / 2]);
    a[half + 2] = mul_bf16x2(pairs.pair[s * 2 + 1], scale[half][j / 2]);
  }
}

// The sums of a warp for kPairs times 16 tokens.
template <uint32_t kPairs>
struct Sums {
  float of[kM][kPairs * 2][4];
};

// The 8 steps of a block of 128 k: m16 tiles in `blocks` times the tokens of a
// stage, which are loaded one pair of n8 tiles ahead.
template <uint32_t kPairs>
__device__ __forceinline__ void run_block(const NvBlock (&blocks)[kM],
                                          uint32_t stage, Sums<kPairs>& sums) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t from =
      stage + chunk_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  uint32_t scale[kM][2][2];
#pragma unroll
  for (uint32_t m = 0; m < kM; m++) {
    nv_scales(blocks[m].scale[0], scale[m][0]);
    nv_scales(blocks[m].scale[1], scale[m][1]);
  }
  uint32_t b[2][4];
  ldmatrix_x4(b[0], from);
#pragma unroll
  for (uint32_t step = 0; step < MOEP_BLOCK_K / MOEP_STEP_K; step++) {
    uint32_t a[kM][4];
#pragma unroll
    for (uint32_t m = 0; m < kM; m++) {
      operands_of(blocks[m], scale[m], static_cast<int>(step / 2), step % 2,
                  a[m]);
    }
#pragma unroll
    for (uint32_t n = 0; n < kPairs; n++) {
      const uint32_t next = step * kPairs + n + 1;
      if (next < kPairs * (MOEP_BLOCK_K / MOEP_STEP_K)) {
        ldmatrix_x4(b[next % 2],
                    (from ^ next / kPairs * 32) + next % kPairs * 16 * kRow);
      }
#pragma unroll
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t* words = b[(next - 1) % 2] + i * 2;
        const uint32_t operand[2] = {words[0], words[1]};
#pragma unroll
        for (uint32_t m = 0; m < kM; m++) {
          mma_m16n8k16_bf16(sums.of[m][n * 2 + i], a[m], operand);
        }
      }
    }
  }
}

// Segments are added in ascending order.
template <uint32_t kPairs>
__device__ __forceinline__ void add_segment(bool first,
                                            const Sums<kPairs>& segment,
                                            Sums<kPairs>& total) {
#pragma unroll
  for (uint32_t m = 0; m < kM; m++) {
#pragma unroll
    for (uint32_t n = 0; n < kPairs * 2; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        const float sum = segment.of[m][n][i];
        total.of[m][n][i] = first ? sum : __fadd_rn(total.of[m][n][i], sum);
      }
    }
  }
}

// Blocks of weights that a lane loads ahead: fewer tokens leave it more registers
// and less time.
template <uint32_t kPairs>
constexpr uint32_t kAhead = kPairs == 1   ? 4
                            : kPairs == 2 ? 2
                                          : 1;
static_assert(MOEP_SEGMENT_K / MOEP_BLOCK_K % 4 == 0, "whole rounds");

// The warp's columns times the tokens of the work.
template <typename P, uint32_t kPairs>
__device__ __forceinline__ void run_work(const moep_grouped_args& args,
                                         const GroupedWork& work,
                                         const Shared& shared, uint32_t memory,
                                         Sums<kPairs>& total) {
  constexpr uint32_t kDepth = kAhead<kPairs>;
  const Sizes<P> sizes = sizes_of<P>(args);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t first =
      work.tile * P::kBlockColumns + threadIdx.x / 32 * kM * P::kColumns;
  const uint32_t tiles =
      first < sizes.columns
          ? min(kM, moep_ceil_div(sizes.columns - first, P::kColumns))
          : 0;
  TokenSource source = token_source<P>(args, work, shared.slots);
#pragma unroll 1
  for (uint32_t i = 0; i < kStages - 1; i++) {
    copy_stage(source, memory + i * kStageBytes);
  }
  uint32_t at = (first + lane / 4) * (sizes.k / 2) + lane % 4 * 16;
  int32_t left = static_cast<int32_t>(sizes.k - lane % 4 * 32);
  NvBlock ring[kDepth][kM] = {};
  const auto load = [&](uint32_t k, NvBlock(&out)[kM]) {
    if (k < sizes.k) {
      load_block<P>(shared.matrices, at, sizes.k, left, tiles, out);
    }
    at += MOEP_BLOCK_K / 2;
    left -= MOEP_BLOCK_K;
  };
#pragma unroll
  for (uint32_t i = 0; i < kDepth; i++) load(i * MOEP_BLOCK_K, ring[i]);
  uint32_t stage = 0, k = 0;
#pragma unroll 1
  while (k < sizes.k) {
    const uint32_t end = min(k + MOEP_SEGMENT_K, sizes.k);
    const bool first_segment = k == 0;
    Sums<kPairs> segment = {};
#pragma unroll 1
    while (k < end) {
#pragma unroll
      for (uint32_t i = 0; i < kDepth; i++) {
        if (k >= end) break;
        const NvBlock blocks[kM] = {ring[i][0], ring[i][1]};
        load(k + kDepth * MOEP_BLOCK_K, ring[i]);
        cp_async_wait_group<kStages - 2>();
        __syncthreads();
        copy_stage(source,
                   memory + (stage + kStages - 1) % kStages * kStageBytes);
        if (tiles != 0) {
          run_block<kPairs>(blocks, memory + stage * kStageBytes, segment);
        }
        stage = (stage + 1) % kStages;
        k += MOEP_BLOCK_K;
      }
    }
    add_segment<kPairs>(first_segment, segment, total);
  }
}

}  // namespace grouped
}  // namespace moep

#endif  // MOEPLAN_KERNELS_GROUPED_TILE_CUH_
