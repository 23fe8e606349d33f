// down_combine, union_down: y[r] = sum_j w[j] bf16(expert.down h[slot]) +
// ffn.down ffn_h[r] for a group of at most 8 rows.
//
// Memory-bound: 9/16 byte per k and column of each expert of the union, 2 bytes
// of the shared one. A persistent grid; each block owns an even, contiguous
// share of the tiles of 16 columns and everything that goes into them, so that
// the combine needs no other block. Its warps take the units (tile, entry) and
// (half tile of the shared expert) in turn. The routing is done again before the
// wait (the logits come from the node before the last), so the first weights are
// on their way while the last node still runs.

#include "kernels/gemv_bf16.cuh"
#include "kernels/group.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kMaxWarps = 16;
constexpr uint32_t kColumns = 16;    // of a tile
constexpr uint32_t kChunkTiles = 4;  // tiles that a block finishes together
constexpr uint32_t kHalf = 8;        // columns of a unit of the shared expert
constexpr uint32_t kFfnAhead = 6;    // steps in flight; 8 spill on sm_80

struct Shared {
  moep::RouteShared route;
  moep::Entries entries;
  uint16_t out[kChunkTiles][MOEP_UNION_ENTRIES][kColumns];  // by group slot
  uint8_t
      here[MOEP_UNION_ENTRIES];  // by group slot: its expert is on this rank
  float ffn[kChunkTiles][MOEP_UNION_ROWS][kColumns];
};

static_assert(sizeof(Shared) + 16 + 8 * moep::kRingBytes <=
                  MOEP_GROUP_DOWN_BYTES,
              "what the planner counts with");

// Mark the slots that the combine adds up.
__device__ __forceinline__ void find_slots(const moep_down_combine_args& args,
                                           Shared& shared) {
  if (threadIdx.x < MOEP_UNION_ENTRIES) shared.here[threadIdx.x] = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < shared.entries.count * MOEP_UNION_ROWS;
       i += blockDim.x) {
    const uint32_t u = shared.entries.entry[i / MOEP_UNION_ROWS].index;
    const uint32_t r = i % MOEP_UNION_ROWS;
    const int32_t j = shared.route.slot[u * MOEP_UNION_ROWS + r];
    if (j >= 0) shared.here[r * args.topk + static_cast<uint32_t>(j)] = 1;
  }
  __syncthreads();
}

// The units of one chunk of tiles: those of the shared expert first, they are
// the longest; then entry by entry, so that warps side by side read the same h.
struct Chunk {
  uint32_t first, tiles;  // of 16 columns
  uint32_t ffn_units, units;
};

__device__ __forceinline__ Chunk chunk_at(const moep_down_combine_args& args,
                                          const Shared& shared, uint32_t first,
                                          uint32_t end) {
  const uint32_t tiles = min(end - first, kChunkTiles);
  const uint32_t ffn = args.width != 0 ? tiles * (kColumns / kHalf) : 0;
  return {first, tiles, ffn, ffn + tiles * shared.entries.count};
}

// One unit of the shared expert: 8 columns, all of its width. Rows g and g + 4
// of each half of the m16 are the same four columns: narrow units share the
// work better than the tensor core minds.
__device__ __forceinline__ void run_ffn(const moep_down_combine_args& args,
                                        Shared& shared, const Chunk& chunk,
                                        uint32_t unit, uint32_t rows) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t tile = unit / 2, at = unit % 2 * kHalf + g % 4;
  const uint64_t column = (chunk.first + tile) * kColumns + at;
  const moep_ffn& ffn = args.site->ffn;
  const uint16_t* w = ffn.down + column * ffn.down_pitch;
  const uint16_t* h =
      g < rows ? args.ffn_h + uint64_t{args.rows.begin + g} * args.width
               : nullptr;
  float total[4];
  for (uint32_t s = 0; s < moep::segments_of(args.width); s++) {
    const float4 next = moep::run_chain<kFfnAhead>(
        moep::segment_chain(w, w + 4 * ffn.down_pitch, h, args.width, s));
    const float sums[4] = {next.x, next.y, next.z, next.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      total[i] = s == 0 ? sums[i] : __fadd_rn(total[i], sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t r = lane % 4 * 2 + i % 2, offset = i / 2 * 4;
    if (g >= 4 || r >= rows) continue;
    shared.ffn[tile][r][at + offset] = total[i];
    if (args.tap.ffn_down == nullptr) continue;
    args.tap.ffn_down[uint64_t{args.rows.begin + r} * args.hidden + column +
                      offset] = total[i];
  }
}

// Round and keep what a lane has of one unit.
__device__ __forceinline__ void finish_unit(const moep_down_combine_args& args,
                                            Shared& shared, const Chunk& chunk,
                                            uint32_t routed,
                                            const float (&total)[4]) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t tile = routed % chunk.tiles;
  const moep::Entry& entry = shared.entries.entry[routed / chunk.tiles];
  const int32_t* slots = shared.route.slot + entry.index * MOEP_UNION_ROWS;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t r = lane % 4 * 2 + i % 2, column = g + i / 2 * 8;
    const int32_t j = slots[r];
    if (j < 0) continue;
    const uint32_t slot = r * args.topk + static_cast<uint32_t>(j);
    shared.out[tile][slot][column] =
        moep_bf16_from_float(total[i] * entry.low.epilogue);
    if (args.tap.expert_down == nullptr) continue;
    const uint64_t absolute = uint64_t{args.rows.begin} * args.topk + slot;
    args.tap.expert_down[absolute * args.hidden +
                         (chunk.first + tile) * kColumns + column] = total[i];
  }
}

// This lane's row of h for an entry, or null.
__device__ __forceinline__ const uint8_t* row_of_h(
    const moep_down_combine_args& args, const Shared& shared,
    const moep::Entry& entry) {
  const uint32_t lane = threadIdx.x % 32, r = lane / 4;
  const int32_t j = shared.route.slot[entry.index * MOEP_UNION_ROWS + r];
  if (j < 0) return nullptr;
  const uint64_t slot =
      uint64_t{args.rows.begin + r} * args.topk + static_cast<uint32_t>(j);
  return reinterpret_cast<const uint8_t*>(args.h +
                                          slot * moep_padded_k(args.inter)) +
         lane % 4 * 16;
}

// 16 bytes of a row of h, or zeros. The last node wrote it.
__device__ __forceinline__ uint4 load_h(const uint8_t* h, int offset) {
  return h != nullptr ? *reinterpret_cast<const uint4*>(h + offset)
                      : make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ moep::Operands load_block(const uint8_t* h,
                                                     int offset) {
  moep::Operands out;
#pragma unroll
  for (int j = 0; j < 4; j++) out.word[j] = load_h(h, offset + j * 64);
  return out;
}

// The chunk's units, one warp's share. wait() is called once, before anything of
// the last node is read.
template <bool kRing, typename Wait>
__device__ __forceinline__ void run_units(const moep_down_combine_args& args,
                                          Shared& shared, const Chunk& chunk,
                                          uint32_t rows, moep::Ring& ring,
                                          Wait wait) {
  const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
  const uint32_t k = args.inter;
  const auto open = [&](uint32_t unit, moep::Cursor& cursor) {
    while (unit < chunk.ffn_units) unit += warps;
    cursor.unit = unit;
    cursor.left = 0;
    if (unit >= chunk.units) return;
    const uint32_t routed = unit - chunk.ffn_units;
    const moep::Entry& entry = shared.entries.entry[routed / chunk.tiles];
    const uint32_t row = (chunk.first + routed % chunk.tiles) * kColumns;
    cursor.left = k / moep::kStageK;
    cursor.source = moep::ring_source(entry.low, entry.high, row, row + 8, k);
  };
  moep::Cursor cursor;
  if (kRing) moep::fill_ring(ring, cursor, warp, open);
  wait();
  for (uint32_t unit = warp; unit < chunk.units; unit += warps) {
    if (unit < chunk.ffn_units) {
      run_ffn(args, shared, chunk, unit, rows);
      continue;
    }
    const uint32_t routed = unit - chunk.ffn_units;
    const moep::Entry& entry = shared.entries.entry[routed / chunk.tiles];
    const uint8_t* h = row_of_h(args, shared, entry);
    float total[4];
    if (kRing) {
      moep::run_unit(
          k, ring, cursor, total, [&](int i) { return load_block(h, i * 256); },
          [&]() { h += h != nullptr ? moep::kStageK * 2 : 0; }, open);
    } else {
      const uint64_t row = (chunk.first + routed % chunk.tiles) * kColumns +
                           threadIdx.x % 32 / 4;
      moep::run_unit_direct(
          k, moep::nv_rows(entry.low, entry.high, row, row + 8, k), total,
          [&](int j) { return load_h(h, j * 64); },
          [&]() { h += h != nullptr ? MOEP_BLOCK_K * 2 : 0; });
    }
    finish_unit(args, shared, chunk, routed, total);
  }
}

// y of the chunk's columns, from its slots.
__device__ __forceinline__ void combine(const moep_down_combine_args& args,
                                        const Shared& shared,
                                        const Chunk& chunk, uint32_t rows) {
  const uint32_t columns = chunk.tiles * kColumns;
  for (uint32_t i = threadIdx.x; i < rows * columns; i += blockDim.x) {
    const uint32_t r = i / columns, tile = i % columns / kColumns;
    const uint32_t column = i % kColumns;
    float sum = 0.0f;
    for (uint32_t j = 0; j < args.topk; j++) {
      const uint32_t slot = r * args.topk + j;

      if (shared.here[slot] == 0) continue;
      sum = __fmaf_rn(shared.route.weights[slot],
                      moep_bf16_to_float(shared.out[tile][slot][column]), sum);
    }
    if (args.width != 0) sum = __fadd_rn(sum, shared.ffn[tile][r][column]);
    const uint64_t at = (args.rows.begin + r) * args.y.stride +
                        (chunk.first + tile) * kColumns + column;
    if (args.y.is_f32 != 0) {
      static_cast<float*>(args.y.data)[at] = moep_f32_stored(sum);
    } else {
      static_cast<uint16_t*>(args.y.data)[at] = moep_bf16_from_float(sum);
    }
  }
}

template <bool kRing>
__global__ void __launch_bounds__(kMaxWarps * 32, 1)
    group_down_kernel(const __grid_constant__ moep_down_combine_args args) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint8_t* rings = memory + moep_round_up(sizeof(Shared), 16);
  // The rings are not in use yet: room for the scores.
  moep::prefetch_site(args.site, args.experts);
  moep::route_block(args.route, rings, shared.route);
  moep::find_entries(args.site, shared.route, shared.entries,
                     [](const moep_expert& expert, uint32_t u) {
                       return moep::Entry{expert.down, expert.down, u};
                     });
  find_slots(args, shared);
  const uint32_t begin = args.rows.begin, tiles = args.hidden / kColumns;
  const uint32_t end = moep::rows_end(args.rows);
  const uint32_t rows = end > begin ? end - begin : 0;
  const uint32_t last = uint64_t{tiles} * (blockIdx.x + 1) / gridDim.x;
  moep::Ring ring = moep::ring_of_warp(rings);
  bool waited = false;
  const auto wait = [&]() {
    if (!waited) moep::griddepcontrol_wait();
    waited = true;
  };
  for (uint32_t first = uint64_t{tiles} * blockIdx.x / gridDim.x;
       first < last && rows > 0; first += kChunkTiles) {
    const Chunk chunk = chunk_at(args, shared, first, last);
    run_units<kRing>(args, shared, chunk, rows, ring, wait);
    __syncthreads();
    combine(args, shared, chunk, rows);
    __syncthreads();
  }
  wait();
  moep::griddepcontrol_launch_dependents();
}

using Kernel = void (*)(const moep_down_combine_args);

Kernel kernel_of(const moep_down_combine_args& args) {
  return args.inter % moep::kStageK == 0 ? group_down_kernel<true>
                                         : group_down_kernel<false>;
}

cudaError_t launch_down(const moep_down_combine_args& args,
                        const struct moep_launch* launch, cudaStream_t stream) {
  const size_t fixed = moep_round_up(sizeof(Shared), 16);
  const uint32_t warps = moep::group_warps(*launch, fixed, kMaxWarps);
  return moep::launch<const moep_down_combine_args>(
      kernel_of(args), args, *launch, warps * 32,
      fixed + size_t{warps} * moep::kRingBytes, stream);
}

cudaError_t load_down() {
  const cudaError_t error = moep::load(group_down_kernel<true>);
  return error != cudaSuccess ? error : moep::load(group_down_kernel<false>);
}

}  // namespace

cudaError_t moep_down_combine_nvfp4_smxx(const union moep_args* args,
                                         const struct moep_launch* launch,
                                         cudaStream_t stream) {
  return launch_down(args->down_combine, launch, stream);
}

cudaError_t moep_union_down_nvfp4_smxx(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  return launch_down(args->union_down, launch, stream);
}

cudaError_t moep_down_combine_nvfp4_smxx_load(void) { return load_down(); }

cudaError_t moep_union_down_nvfp4_smxx_load(void) { return load_down(); }
