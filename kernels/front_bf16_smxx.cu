// logits[r, e] = dot(x[r], router[e]) and, in the same node, the shared expert's
// h[r, i] = bf16(swiglu(bf16(gate[i] . x[r]), bf16(up[i] . x[r]), limit)).
//
// Memory-bound: 2 bytes per k and expert, 4 per k and column of h. A persistent
// grid; each block owns an even share of the experts and of the columns, its
// warps take units (tile, segment of K) in turn and stream them through rings of
// their own. A tile is 8 rows: 8 experts, or 4 gate and 4 up rows. The m16 has
// each of them twice: short units share the work better than the tensor core
// minds. Weights are frozen, so the first are on their way before the wait.

#include "kernels/gemv_bf16.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kThreads = 384;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kStages = 2;
constexpr uint32_t kStageK = 256;
constexpr uint32_t kStageRow = kStageK * 2;  // bytes
constexpr uint32_t kTileRows = 8;
constexpr uint32_t kStageBytes = kTileRows * kStageRow;
constexpr uint32_t kTileColumns = 4;  // of h
constexpr uint32_t kRoundUnits = 32;  // whose totals a block keeps, or more

static_assert(kWarps * kStages * kStageBytes + kRoundUnits * 512 + 512 <=
                  MOEP_FRONT_BYTES,
              "what the planner counts with");

// What a block does between two barriers: perhaps one tile of experts, and some
// tiles of h.
struct Round {
  uint32_t expert, experts;  // of the tile; 0 experts: none
  uint32_t column, tiles;    // of h
  uint32_t expert_segments, column_segments;

  __device__ uint32_t logits_units() const {
    return experts != 0 ? expert_segments : 0;
  }
  __device__ uint32_t units() const {
    return logits_units() + tiles * column_segments;
  }
};

// A stream of stages of one tile and segment.
struct Cursor {
  uint32_t unit;
  uint32_t k_left;  // still to copy; 0: nothing more
  const uint16_t* half[2];
  uint64_t pitch;
  uint32_t rows[2];  // of each half
};

__device__ __forceinline__ uint32_t segment_length(uint32_t k, uint32_t segment,
                                                   uint32_t segment_k) {
  return min(k - segment * segment_k, segment_k);
}

__device__ __forceinline__ uint32_t unit_length(const Round& round, uint32_t k,
                                                uint32_t unit) {
  const uint32_t logits = round.logits_units();
  return unit < logits
             ? segment_length(k, unit, MOEP_ROUTER_SEGMENT_K)
             : segment_length(k, (unit - logits) % round.column_segments,
                              MOEP_SEGMENT_K);
}

__device__ __forceinline__ uint32_t unit_begin(const Round& round,
                                               uint32_t unit) {
  const uint32_t logits = round.logits_units();
  return unit < logits
             ? unit * MOEP_ROUTER_SEGMENT_K
             : (unit - logits) % round.column_segments * MOEP_SEGMENT_K;
}

__device__ __forceinline__ void open_unit(const moep_front_args& args,
                                          const Round& round, uint32_t unit,
                                          Cursor& cursor) {
  cursor.unit = unit;
  cursor.k_left = 0;
  if (unit >= round.units()) return;
  const uint32_t hidden = args.logits.hidden;
  const uint64_t at = unit_begin(round, unit) + threadIdx.x % 32 * 8;
  const moep_site_table* site = args.logits.site;
  cursor.k_left = unit_length(round, hidden, unit);
  cursor.pitch = hidden;
  if (unit < round.logits_units()) {
    cursor.half[0] = site->router + uint64_t{round.expert} * hidden + at;
    cursor.half[1] = cursor.half[0] + 4 * uint64_t{hidden};
    cursor.rows[0] = min(round.experts, 4u);
    cursor.rows[1] = round.experts - cursor.rows[0];
    return;
  }
  const uint64_t column = round.column + (unit - round.logits_units()) /
                                             round.column_segments *
                                             kTileColumns;
  cursor.half[0] = site->ffn.gate + column * hidden + at;
  cursor.half[1] = site->ffn.up + column * hidden + at;
  cursor.rows[0] = cursor.rows[1] = kTileColumns;
}

// Copy one stage: each instruction one row of 512 bytes. Row r's 16-byte chunk c
// lies at chunk c ^ 2 (r % 4): four rows of half a warp are in different banks.
__device__ __forceinline__ void copy_stage(const moep_front_args& args,
                                           const Round& round, uint32_t stage,
                                           Cursor& cursor) {
  const uint32_t lane = threadIdx.x % 32;
  if (cursor.k_left != 0) {
    if (lane * 8 < cursor.k_left) {
#pragma unroll
      for (uint32_t i = 0; i < kTileRows; i++) {
        const uint32_t half = i / 4, r = i % 4;
        if (r >= cursor.rows[half]) continue;
        moep::cp_async_16(stage + i * kStageRow + (lane ^ r << 1) * 16,
                          cursor.half[half] + r * cursor.pitch);
      }
    }
    cursor.half[0] += kStageK;
    cursor.half[1] += kStageK;
    cursor.k_left -= min(cursor.k_left, kStageK);
    if (cursor.k_left == 0) {
      open_unit(args, round, cursor.unit + kWarps, cursor);
    }
  }
  moep::cp_async_commit_group();
}

// One unit's chain; the lane's row of x begins at the unit's first k.
__device__ __forceinline__ float4 run_unit(const moep_front_args& args,
                                           const Round& round, uint32_t ring,
                                           uint32_t& stage, const uint16_t* x,
                                           uint32_t length, Cursor& cursor) {
  const uint32_t row = threadIdx.x % 32 / 4 % 4, t = threadIdx.x % 4;
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint32_t k = 0; k < length; k += kStageK) {
    moep::cp_async_wait_group<kStages - 1>();
    __syncwarp();
    const uint32_t steps = min(length - k, kStageK) / MOEP_STEP_K;
    const uint32_t low = stage + row * kStageRow + t % 2 * 8;
#pragma unroll 4
    for (uint32_t s = 0; s < steps; s++) {
      const uint32_t at = (2 * s + t / 2 ^ row << 1) * 16;
      const uint2 a0 = moep::ld_shared_v2(low + at);
      const uint2 a1 = moep::ld_shared_v2(low + 4 * kStageRow + at);
      uint2 b = make_uint2(0, 0);
      if (x != nullptr) {
        b = *reinterpret_cast<const uint2*>(x + k + s * MOEP_STEP_K);
      }
      const uint32_t a[4] = {a0.x, a1.x, a0.y, a1.y};
      const uint32_t operand[2] = {b.x, b.y};
      moep::mma_m16n8k16_bf16(sum, a, operand);
    }
    __syncwarp();
    copy_stage(args, round, stage, cursor);
    stage += kStageBytes;
    if (stage == ring + kStages * kStageBytes) stage = ring;
  }
  return make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// Logits of the round's experts, by one warp.
__device__ __forceinline__ void store_logits(const moep_logits_args& args,
                                             const Round& round,
                                             const float4* totals) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  if (g >= 4) return;
  const float4 sum =
      moep::sum_segments(totals + lane, round.expert_segments, 1);
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    const uint64_t row = args.rows.begin + lane % 4 * 2 + i % 2;
    const uint32_t e = g + i / 2 * 4;
    if (row >= moep::rows_end(args.rows) || e >= round.experts) continue;
    const uint64_t at = row * args.experts + round.expert + e;
    args.logits[at] = values[i];
    if (args.tap.logits != nullptr) args.tap.logits[at] = values[i];
  }
}

// h of one tile, by one warp.
__device__ __forceinline__ void store_h(const moep_ffn_up_args& args,
                                        uint32_t first, uint32_t segments,
                                        const float4* totals) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  if (g >= kTileColumns) return;
  const float4 sum = moep::sum_segments(totals + lane, segments, 1);
  const float gate[2] = {sum.x, sum.y}, up[2] = {sum.z, sum.w};
  const uint32_t column = first + g;
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint64_t row = args.rows.begin + lane % 4 * 2 + i;
    if (row >= moep::rows_end(args.rows)) continue;
    args.h[row * args.width + column] = moep_bf16_from_float(moep_swiglu(
        moep_bf16_round(gate[i]), moep_bf16_round(up[i]), args.limit));
    if (args.tap.ffn_up == nullptr) continue;
    args.tap.ffn_up[row * 2 * args.width + column] = gate[i];
    args.tap.ffn_up[(row * 2 + 1) * args.width + column] = up[i];
  }
}

// The block's share of `all`, in multiples of `unit`: its begin.
__device__ __forceinline__ uint32_t share(uint32_t all, uint32_t unit,
                                          uint32_t block) {
  return uint64_t{all / unit} * block / gridDim.x * unit;
}

__device__ __forceinline__ void run_round(const moep_front_args& args,
                                          const Round& round, uint32_t ring,
                                          float4* totals, bool& waited) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Cursor cursor;
  open_unit(args, round, warp, cursor);
#pragma unroll 1
  for (uint32_t i = 0; i < kStages; i++) {
    copy_stage(args, round, ring + i * kStageBytes, cursor);
  }
  if (!waited) moep::griddepcontrol_wait();
  waited = true;
  const moep_rows& rows = args.logits.rows;
  const uint32_t row = rows.begin + lane / 4;
  const uint16_t* x =
      row < moep::rows_end(rows)
          ? args.logits.x.data + row * args.logits.x.stride + lane % 4 * 4
          : nullptr;
  uint32_t stage = ring;
  for (uint32_t unit = warp; unit < round.units(); unit += kWarps) {
    totals[unit * 32 + lane] =
        run_unit(args, round, ring, stage,
                 x == nullptr ? nullptr : x + unit_begin(round, unit),
                 unit_length(round, args.logits.hidden, unit), cursor);
  }
  __syncthreads();
  if (round.experts != 0 && warp == 0) store_logits(args.logits, round, totals);
  for (uint32_t tile = warp; tile < round.tiles; tile += kWarps) {
    const uint32_t unit = round.logits_units() + tile * round.column_segments;
    store_h(args.ffn, round.column + tile * kTileColumns, round.column_segments,
            totals + unit * 32);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 1)
    front_kernel(const __grid_constant__ moep_front_args args) {
  extern __shared__ __align__(16) uint8_t memory[];
  const uint32_t hidden = args.logits.hidden;
  Round round = {};
  round.expert_segments = moep_ceil_div(hidden, MOEP_ROUTER_SEGMENT_K);
  round.column_segments = moep::segments_of(hidden);
  float4* totals =
      reinterpret_cast<float4*>(memory + kWarps * kStages * kStageBytes);
  const uint32_t ring =
      moep::shared_address(memory) + threadIdx.x / 32 * kStages * kStageBytes;
  const bool routed = args.logits.external_ids == nullptr;
  round.expert = routed ? share(args.logits.experts, 1, blockIdx.x) : 0;
  const uint32_t last_expert =
      routed ? share(args.logits.experts, 1, blockIdx.x + 1) : 0;
  round.column = share(args.ffn.width, kTileColumns, blockIdx.x);
  const uint32_t last_column =
      share(args.ffn.width, kTileColumns, blockIdx.x + 1);
  bool waited = false;
  while (round.expert < last_expert || round.column < last_column) {
    round.experts = min(last_expert - round.expert, kTileRows);
    const uint32_t room = kRoundUnits / round.column_segments;
    round.tiles = min((last_column - round.column) / kTileColumns, room);
    run_round(args, round, ring, totals, waited);
    round.expert += round.experts;
    round.column += round.tiles * kTileColumns;
  }
  if (!waited) moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
}

}  // namespace

cudaError_t moep_front_bf16_smxx(const union moep_args* args,
                                 const struct moep_launch* launch,
                                 cudaStream_t stream) {
  const uint32_t units =
      moep_ceil_div(args->front.logits.hidden, MOEP_ROUTER_SEGMENT_K) +
      kRoundUnits;
  return moep::launch<const moep_front_args>(
      front_kernel, args->front, *launch, kThreads,
      kWarps * kStages * kStageBytes + size_t{units} * 32 * sizeof(float4),
      stream);
}

cudaError_t moep_front_bf16_smxx_load(void) { return moep::load(front_kernel); }
