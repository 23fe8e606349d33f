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
          uint32_t kRowWarps_, uint32_t kStageK_, uint32_t kStages_>
struct Tile {
  static constexpr uint32_t kM = kM_;  // m16 tiles of a warp at most
  static constexpr uint32_t kExpertWarps = kExpertWarps_;
  static constexpr uint32_t kN = kN_;  // n8 tiles of a warp
  static constexpr uint32_t kRowWarps = kRowWarps_;
  static constexpr uint32_t kThreads = kExpertWarps * kRowWarps * 32;
  static constexpr uint32_t kExperts = kM * kExpertWarps * 16;
  static constexpr uint32_t kRows = kN * kRowWarps * 8;
  static constexpr uint32_t kStageK = kStageK_;
  static constexpr uint32_t kStages = kStages_;
  static constexpr uint32_t kPitch = kStageK * 2;  // bytes
  static constexpr uint32_t kStageBytes = (kExperts + kRows) * kPitch;
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes;
  static constexpr uint32_t kChunks = kPitch / 16;
  static constexpr uint32_t kRowsAtOnce = kThreads / kChunks;  // copied
  static_assert(MOEP_ROUTER_SEGMENT_K % kStageK == 0, "whole stages");
  static_assert(kRowsAtOnce % 8 == 0, "one swizzle for a thread's rows");
  static_assert(kN % 2 == 0, "two n8 tiles at a time");
};
using Narrow = Tile<1, 2, 2, 4, 128, 4>;
using Wide = Tile<5, 4, 4, 2, 64, 4>;
using WideInLess = Tile<5, 4, 4, 2, 64, 2>;  // shared memory
static_assert(Narrow::kSharedBytes <= 99 * 1024, "what every GPU has");
static_assert(WideInLess::kSharedBytes <= 99 * 1024, "what every GPU has");

// From so many rows on the wide tile's blocks fill enough SMs.
constexpr uint32_t kWideRows = 3072;

// What a block computes.
struct Work {
  uint32_t expert, experts;  // first, and how many
  uint64_t row;
  uint32_t rows;
};

// 16-byte chunk of a row of a stage: 8 rows of one chunk lie in different banks.
// Stages begin at multiples of kPitch.
template <typename T>
__device__ __forceinline__ uint32_t chunk_at(uint32_t row, uint32_t chunk) {
  static_assert(T::kPitch % 128 == 0, "rows of a stage");
  return row * T::kPitch + (chunk ^ row % 8) * 16;
}

// What a thread copies next: one chunk of every kRowsAtOnce-th row.
struct Source {
  const uint16_t* router;
  const uint16_t* x;
  uint32_t experts, rows;  // of them
  int32_t left;            // k from the chunk on
};

template <typename T>
__device__ __forceinline__ Source source_of(const moep_logits_args& args,
                                            const Work& work) {
  const uint32_t row = threadIdx.x / T::kChunks;
  const uint32_t k = threadIdx.x % T::kChunks * 8;
  const auto count = [&](uint32_t all) {
    return all > row ? moep_ceil_div(all - row, T::kRowsAtOnce) : 0;
  };
  return {args.site->router + uint64_t{work.expert + row} * args.hidden + k,
          args.x.data + (work.row + row) * args.x.stride + k,
          count(work.experts), count(work.rows),
          static_cast<int32_t>(args.hidden) - static_cast<int32_t>(k)};
}

// A stage's experts and rows, one group of copies in any case. What no logit needs
// is left as it is.
template <typename T>
__device__ __forceinline__ void copy_stage(const moep_logits_args& args,
                                           Source& source, uint32_t stage) {
  const uint32_t to =
      stage + chunk_at<T>(threadIdx.x / T::kChunks, threadIdx.x % T::kChunks);
  if (source.left > 0) {
    const uint16_t* router = source.router;
    const uint16_t* x = source.x;
#pragma unroll
    for (uint32_t i = 0; i < T::kExperts / T::kRowsAtOnce; i++) {
      if (i < source.experts) {
        moep::cp_async_16(to + i * T::kRowsAtOnce * T::kPitch, router);
      }
      router += uint64_t{T::kRowsAtOnce} * args.hidden;
    }
#pragma unroll
    for (uint32_t i = 0; i < T::kRows / T::kRowsAtOnce; i++) {
      if (i < source.rows) {
        moep::cp_async_16(to + (T::kExperts + i * T::kRowsAtOnce) * T::kPitch,
                          x);
      }
      x += T::kRowsAtOnce * args.x.stride;
    }
  }
  source.router += T::kStageK;
  source.x += T::kStageK;
  source.left -= static_cast<int32_t>(T::kStageK);
  moep::cp_async_commit_group();
}

// A warp's sums.
template <typename T>
struct Sums {
  float of[T::kM][T::kN][4];
};

// Operands of one step: of an m16 tile, and of two n8 tiles each.
struct OperandA {
  uint32_t word[4];
};
template <typename T>
struct OperandB {
  uint32_t word[T::kN / 2][4];
};

// Where this lane's rows of the operands lie in a stage.
template <typename T>
struct Places {
  uint32_t a, b;
};
template <typename T>
__device__ __forceinline__ Places<T> places_of(uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t m = warp / T::kRowWarps, n = warp % T::kRowWarps * T::kN;
  return {stage + chunk_at<T>(m * 16 + lane % 16, lane / 16),
          stage + chunk_at<T>(T::kExperts + n * 8 + lane / 16 * 8 + lane % 8,
                              lane / 8 % 2)};
}
template <typename T>
__device__ __forceinline__ OperandA load_a(const Places<T>& at, uint32_t s,
                                           uint32_t m) {
  OperandA a;
  moep::ldmatrix_x4(a.word,
                    (at.a ^ s * 32) + m * T::kExpertWarps * 16 * T::kPitch);
  return a;
}
template <typename T>
__device__ __forceinline__ OperandB<T> load_b(const Places<T>& at, uint32_t s) {
  OperandB<T> b;
#pragma unroll
  for (uint32_t n = 0; n < T::kN; n += 2) {
    moep::ldmatrix_x4(b.word[n / 2], (at.b ^ s * 32) + n * 8 * T::kPitch);
  }
  return b;
}

// The steps of one stage, operands loaded one tile ahead; `tiles`: m16 tiles of
// this warp.
template <typename T>
__device__ __forceinline__ void run_stage(uint32_t stage, uint32_t steps,
                                          uint32_t tiles, Sums<T>& sums) {
  constexpr uint32_t kSteps = T::kStageK / MOEP_STEP_K;
  const Places<T> at = places_of<T>(stage);
  OperandB<T> b = load_b<T>(at, 0);
  OperandA a = load_a<T>(at, 0, 0);
#pragma unroll
  for (uint32_t s = 0; s < kSteps; s++) {
    if (s >= steps) break;
    OperandB<T> next_b = b;
    if (s + 1 < kSteps) next_b = load_b<T>(at, s + 1);
#pragma unroll
    for (uint32_t m = 0; m < T::kM; m++) {
      OperandA next_a = a;
      if (m + 1 < T::kM) {
        next_a = load_a<T>(at, s, m + 1);
      } else if (s + 1 < kSteps) {
        next_a = load_a<T>(at, s + 1, 0);
      }
      if (m < tiles) {
#pragma unroll
        for (uint32_t n = 0; n < T::kN; n++) {
          const uint32_t operand[2] = {b.word[n / 2][n % 2 * 2],
                                       b.word[n / 2][n % 2 * 2 + 1]};
          moep::mma_m16n8k16_bf16(sums.of[m][n], a.word, operand);
        }
      }
      a = next_a;
    }
    b = next_b;
  }
}

// Segments are added in ascending order.
template <typename T>
__device__ __forceinline__ void add_segment(bool first, const Sums<T>& segment,
                                            Sums<T>& total) {
#pragma unroll
  for (uint32_t m = 0; m < T::kM; m++) {
#pragma unroll
    for (uint32_t n = 0; n < T::kN; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        const float sum = segment.of[m][n][i];
        total.of[m][n][i] = first ? sum : __fadd_rn(total.of[m][n][i], sum);
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void store(const moep_logits_args& args,
                                      const Work& work, const Sums<T>& total) {
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
        args.logits[at] = total.of[m][n][i];
        if (args.tap.logits != nullptr) {
          args.tap.logits[at] = total.of[m][n][i];
        }
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void run_work(const moep_logits_args& args,
                                         const Work& work, uint32_t memory) {
  const uint32_t first_m = threadIdx.x / 32 / T::kRowWarps;
  const uint32_t all = moep_ceil_div(work.experts, 16);
  const uint32_t tiles =
      all > first_m ? moep_ceil_div(all - first_m, T::kExpertWarps) : 0;
  Source source = source_of<T>(args, work);
  __syncthreads();  // the stages of the work before are read
#pragma unroll 1
  for (uint32_t i = 0; i < T::kStages - 1; i++) {
    copy_stage<T>(args, source, memory + i * T::kStageBytes);
  }
  Sums<T> total = {};
  uint32_t stage = 0, k = 0;
#pragma unroll 1
  while (k < args.hidden) {
    const uint32_t end = min(k + MOEP_ROUTER_SEGMENT_K, args.hidden);
    const bool first = k == 0;
    Sums<T> segment = {};
#pragma unroll 1
    for (; k < end; k += T::kStageK) {
      moep::cp_async_wait_group<T::kStages - 2>();
      __syncthreads();
      copy_stage<T>(
          args, source,
          memory + (stage + T::kStages - 1) % T::kStages * T::kStageBytes);
      run_stage<T>(memory + stage * T::kStageBytes, (end - k) / MOEP_STEP_K,
                   tiles, segment);
      stage = (stage + 1) % T::kStages;
    }
    add_segment<T>(first, segment, total);
  }
  store<T>(args, work, total);
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads)
    logits_kernel(const __grid_constant__ moep_logits_args args) {
  extern __shared__ __align__(256) uint8_t memory[];
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

template <typename T>
cudaError_t launch_logits(const moep_logits_args& args,
                          const moep_launch& launch, cudaStream_t stream) {
  return moep::launch<const moep_logits_args>(
      logits_kernel<T>, args, launch, T::kThreads, T::kSharedBytes, stream);
}

}  // namespace

cudaError_t moep_logits_bf16_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  const moep_logits_args& logits = args->logits;
  if (logits.rows.count < kWideRows) {
    return launch_logits<Narrow>(logits, *launch, stream);
  }
  return launch->shared_bytes >= Wide::kSharedBytes
             ? launch_logits<Wide>(logits, *launch, stream)
             : launch_logits<WideInLess>(logits, *launch, stream);
}

cudaError_t moep_logits_bf16_smxx_load(void) {
  cudaError_t error = moep::load(logits_kernel<Narrow>);
  if (error == cudaSuccess) error = moep::load(logits_kernel<Wide>);
  if (error == cudaSuccess) error = moep::load(logits_kernel<WideInLess>);
  return error;
}
