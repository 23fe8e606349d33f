// logits[r, e] = router[e] . x[r]
//
// Bound by the tensor cores for many rows, by latency for few. A block computes
// experts x rows of one tile over all of K: stages of both operands go through
// shared memory, each warp has some m16 tiles of experts times some n8 tiles of
// rows. Few rows take a narrow tile, so that there are blocks enough.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"

namespace {

// A block's tile. m16 tiles of experts are dealt to the warps in turn.
template <uint32_t kM_, uint32_t kExpertWarps_, uint32_t kN_,
          uint32_t kRowWarps_, uint32_t kStageK_>
struct Tile {
  static constexpr uint32_t kM = kM_;  // m16 tiles of a warp at most
  static constexpr uint32_t kExpertWarps = kExpertWarps_;
  static constexpr uint32_t kN = kN_;  // n8 tiles of a warp
  static constexpr uint32_t kRowWarps = kRowWarps_;
  static constexpr uint32_t kThreads = kExpertWarps * kRowWarps * 32;
  static constexpr uint32_t kExperts = kM * kExpertWarps * 16;
  static constexpr uint32_t kRows = kN * kRowWarps * 8;
  static constexpr uint32_t kStageK = kStageK_;
  static constexpr uint32_t kStages = 4;
  static constexpr uint32_t kPitch = kStageK * 2;  // bytes
  static constexpr uint32_t kStageBytes = (kExperts + kRows) * kPitch;
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes;
  static_assert(kSharedBytes <= 99 * 1024, "what every GPU has");
  static_assert(MOEP_ROUTER_SEGMENT_K % kStageK == 0, "whole stages");
  static_assert(kStageK % 32 == 0, "two steps at a time");
};
using Narrow = Tile<1, 2, 2, 4, 128>;
using Wide = Tile<5, 4, 4, 2, 32>;

// From so many rows on the wide tile's blocks fill enough SMs.
constexpr uint32_t kWideRows = 2048;

// What a block computes.
struct Work {
  uint32_t expert, experts;  // first, and how many
  uint64_t row;
  uint32_t rows;
};

// 16-byte chunk `chunk` of a row of a stage: 8 rows of one chunk lie in different
// banks.
template <uint32_t kPitch>
__device__ __forceinline__ uint32_t chunk_at(uint32_t row, uint32_t chunk) {
  static_assert(kPitch == 64 || kPitch % 128 == 0, "rows of a stage");
  const uint32_t swizzle = kPitch == 64 ? row / 2 % 4 : row % 8;
  return row * kPitch + (chunk ^ swizzle) * 16;
}

// A stage's experts and rows from k on, one group of copies.
template <typename T>
__device__ __forceinline__ void copy_stage(const moep_logits_args& args,
                                           const Work& work, uint32_t k,
                                           uint32_t stage) {
  constexpr uint32_t kChunks = T::kPitch / 16;
  const uint16_t* router =
      args.site->router + uint64_t{work.expert} * args.hidden;
  const uint16_t* x = args.x.data + work.row * args.x.stride;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < (T::kExperts + T::kRows) * kChunks;
       i += T::kThreads) {
    const uint32_t row = i / kChunks, chunk = i % kChunks;
    const uint32_t r = row - T::kExperts, at = k + chunk * 8;
    const bool of_router = row < T::kExperts;
    const bool present =
        at < args.hidden && (of_router ? row < work.experts : r < work.rows);
    const uint16_t* from = of_router ? router + uint64_t{row} * args.hidden
                                     : x + r * args.x.stride;
    if (k >= args.hidden || (of_router && row >= work.experts)) continue;
    moep::cp_async_16_or_zeros(stage + chunk_at<T::kPitch>(row, chunk),
                               present ? from + at : args.x.data, present);
  }
  moep::cp_async_commit_group();
}

// A warp's sums.
template <typename T>
struct Sums {
  float segment[T::kM][T::kN][4];
  float total[T::kM][T::kN][4];
};

// The steps of one stage; `tiles`: m16 tiles of this warp.
template <typename T>
__device__ __forceinline__ void run_stage(uint32_t stage, uint32_t steps,
                                          uint32_t tiles, Sums<T>& sums) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first_m = warp / T::kRowWarps, first_n = warp % T::kRowWarps;
#pragma unroll
  for (uint32_t s = 0; s < T::kStageK / 16; s += 2) {
    if (s >= steps) break;
    uint32_t b[T::kN][4];  // of two steps
#pragma unroll
    for (uint32_t n = 0; n < T::kN; n++) {
      const uint32_t row = T::kExperts + (first_n * T::kN + n) * 8 + lane % 8;
      moep::ldmatrix_x4(b[n],
                        stage + chunk_at<T::kPitch>(row, s * 2 + lane / 8));
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
      if (s + half >= steps) break;
#pragma unroll
      for (uint32_t m = 0; m < T::kM; m++) {
        if (m >= tiles) break;
        const uint32_t row = (m * T::kExpertWarps + first_m) * 16 + lane % 16;
        uint32_t a[4];
        moep::ldmatrix_x4(
            a, stage + chunk_at<T::kPitch>(row, (s + half) * 2 + lane / 16));
#pragma unroll
        for (uint32_t n = 0; n < T::kN; n++) {
          const uint32_t operand[2] = {b[n][half * 2], b[n][half * 2 + 1]};
          moep::mma_m16n8k16_bf16(sums.segment[m][n], a, operand);
        }
      }
    }
  }
}

// Segments are added in ascending order.
template <typename T>
__device__ __forceinline__ void add_segment(bool first, Sums<T>& sums) {
#pragma unroll
  for (uint32_t m = 0; m < T::kM; m++) {
#pragma unroll
    for (uint32_t n = 0; n < T::kN; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        float& total = sums.total[m][n][i];
        float& segment = sums.segment[m][n][i];
        total = first ? segment : __fadd_rn(total, segment);
        segment = 0.0f;
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void store(const moep_logits_args& args,
                                      const Work& work, const Sums<T>& sums) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first_m = warp / T::kRowWarps, first_n = warp % T::kRowWarps;
#pragma unroll
  for (uint32_t m = 0; m < T::kM; m++) {
#pragma unroll
    for (uint32_t n = 0; n < T::kN; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        const uint32_t e =
            (m * T::kExpertWarps + first_m) * 16 + lane / 4 + i / 2 * 8;
        const uint32_t r = (first_n * T::kN + n) * 8 + lane % 4 * 2 + i % 2;
        if (e >= work.experts || r >= work.rows) continue;
        const uint64_t at = (work.row + r) * args.experts + work.expert + e;
        args.logits[at] = sums.total[m][n][i];
        if (args.tap.logits != nullptr) {
          args.tap.logits[at] = sums.total[m][n][i];
        }
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void run_work(const moep_logits_args& args,
                                         const Work& work, uint32_t memory) {
  const uint32_t stages = moep_ceil_div(args.hidden, T::kStageK);
  const uint32_t first_m = threadIdx.x / 32 / T::kRowWarps;
  const uint32_t all = moep_ceil_div(work.experts, 16);
  const uint32_t tiles =
      all > first_m ? moep_ceil_div(all - first_m, T::kExpertWarps) : 0;
  Sums<T> sums = {};
  __syncthreads();  // the stages of the work before are read
#pragma unroll 1
  for (uint32_t i = 0; i < T::kStages - 1; i++) {
    copy_stage<T>(args, work, i * T::kStageK, memory + i * T::kStageBytes);
  }
#pragma unroll 1
  for (uint32_t i = 0; i < stages; i++) {
    const uint32_t next = i + T::kStages - 1;
    moep::cp_async_wait_group<T::kStages - 2>();
    __syncthreads();
    copy_stage<T>(args, work, next * T::kStageK,
                  memory + next % T::kStages * T::kStageBytes);
    const uint32_t end = (i + 1) * T::kStageK;
    const uint32_t k = min(args.hidden - i * T::kStageK, T::kStageK);
    run_stage<T>(memory + i % T::kStages * T::kStageBytes, k / MOEP_STEP_K,
                 tiles, sums);
    if (end % MOEP_ROUTER_SEGMENT_K != 0 && end < args.hidden) continue;
    add_segment<T>(end <= MOEP_ROUTER_SEGMENT_K, sums);
  }
  store<T>(args, work, sums);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads)
    logits_kernel(const __grid_constant__ moep_logits_args args) {
  extern __shared__ __align__(128) uint8_t memory[];
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  if (args.external_ids != nullptr) return;
  // As many experts in each tile as in the others, but for the last.
  const uint32_t columns = moep_ceil_div(args.experts, T::kExperts);
  const uint32_t experts =
      moep_round_up(moep_ceil_div(args.experts, columns), 16);
  const uint32_t alive = moep_rows_alive(&args.rows);
  const uint32_t works = columns * moep_ceil_div(alive, T::kRows);
  for (uint32_t i = blockIdx.x; i < works; i += gridDim.x) {
    const uint32_t expert = i % columns * experts, row = i / columns * T::kRows;
    if (expert >= args.experts) continue;
    const Work work = {expert, min(experts, args.experts - expert),
                       uint64_t{args.rows.begin} + row,
                       min(alive - row, T::kRows)};
    run_work<T>(args, work, moep::shared_address(memory));
  }
  moep::cp_async_wait_group<0>();
}

}  // namespace

cudaError_t moep_logits_bf16_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const moep_logits_args& logits = args->logits;
  if (logits.rows.count >= kWideRows) {
    return moep::launch<const moep_logits_args>(logits_kernel<Wide>, logits,
                                                *launch, Wide::kThreads,
                                                Wide::kSharedBytes, stream);
  }
  return moep::launch<const moep_logits_args>(logits_kernel<Narrow>, logits,
                                              *launch, Narrow::kThreads,
                                              Narrow::kSharedBytes, stream);
}

cudaError_t moep_logits_bf16_smxx_load(void) {
  const cudaError_t error = moep::load(logits_kernel<Narrow>);
  return error != cudaSuccess ? error : moep::load(logits_kernel<Wide>);
}
