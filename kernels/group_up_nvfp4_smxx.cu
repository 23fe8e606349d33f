// route_up, union_up: route a group of at most 8 rows, then
// h[slot] = bf16(swiglu(bf16(gate x), bf16(up x), limit)) for each expert of the
// union and each of its rows.
//
// Memory-bound: 9/8 byte per k and column, whatever the rows. A persistent grid;
// each block takes an even, contiguous share of the units (entry, 8 columns), its
// warps one after the other. 8 gate and 8 up rows are one m16, so a lane holds
// both halves of its SwiGLU. All rows' x lies in shared memory.

#include "kernels/group.cuh"
#include "kernels/launch.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kMaxWarps = 16;
constexpr uint32_t kColumns = 8;  // of a unit
constexpr uint32_t kZeroBytes = moep::kStageK * 2;

struct Shared {
  moep::RouteShared route;
  moep::Entries entries;
  __align__(16) uint8_t zeros[kZeroBytes];  // x of the rows that are not there
};

static_assert(sizeof(Shared) + 16 + 8 * moep::kRingBytes <= MOEP_GROUP_UP_BYTES,
              "what the planner counts with");

// Bytes of a row of x in shared memory: two rows of a quarter warp are in
// different banks.
__host__ __device__ __forceinline__ uint32_t x_pitch(uint32_t hidden) {
  return moep_padded_k(hidden) * 2 + MOEP_GROUP_ROW_BYTES;
}

// x of the live rows, in lane order; dead rows are zeros.
__device__ __forceinline__ void stage_x(const moep_route_up_args& args,
                                        Shared& shared, uint8_t* xs) {
  const moep_rows& rows = args.route.rows;
  const uint32_t live = moep_live_rows(rows.live_rows, rows.total);
  const uint32_t words = moep_padded_k(args.up.hidden) / 2;
  for (uint32_t i = threadIdx.x; i < kZeroBytes; i += blockDim.x) {
    shared.zeros[i] = 0;
  }
  for (uint32_t r = 0; r < rows.count; r++) {
    const bool alive = rows.begin + r < live;
    const uint16_t* x = args.up.x.data + (rows.begin + r) * args.up.x.stride;
    uint32_t* out =
        reinterpret_cast<uint32_t*>(xs + r * x_pitch(args.up.hidden));
    for (uint32_t w = threadIdx.x; w < words; w += blockDim.x) {
      const uint32_t k = moep_k_from_p(2 * w);
      const uint32_t low = alive && k < args.up.hidden ? x[k] : 0;
      const uint32_t high = alive && k + 4 < args.up.hidden ? x[k + 4] : 0;
      out[moep::lane_order_word(w)] = low | high << 16;
    }
  }
}

// Place of column i in a row of h.
__device__ __forceinline__ uint32_t h_place(uint32_t i) {
  const uint32_t p = moep_p_from_k(i);
  return moep::lane_order_word(p / 2) * 2 + p % 2;
}

__device__ __forceinline__ void store(const moep_route_up_args& args,
                                      const moep::Entry& entry, uint32_t r,
                                      int32_t j, uint32_t column, float gate,
                                      float up) {
  if (j < 0) return;
  const uint64_t slot =
      uint64_t{args.route.rows.begin + r} * args.route.rule.topk +
      static_cast<uint32_t>(j);
  if (args.up.tap.expert_up != nullptr) {
    float* tap = args.up.tap.expert_up + slot * 2 * args.up.inter + column;
    tap[0] = gate;
    tap[args.up.inter] = up;
  }
  const float value =
      moep_swiglu(moep_bf16_round(gate * entry.low.epilogue),
                  moep_bf16_round(up * entry.high.epilogue), args.up.limit);
  args.up.h[slot * moep_padded_k(args.up.inter) + h_place(column)] =
      moep_bf16_from_float(value);
}

__device__ __forceinline__ void finish_unit(const moep_route_up_args& args,
                                            const Shared& shared, uint32_t unit,
                                            const float (&total)[4]) {
  const uint32_t tiles = args.up.inter / kColumns;
  const uint32_t lane = threadIdx.x % 32, r = lane % 4 * 2;
  const uint32_t column = unit % tiles * kColumns + lane / 4;
  const moep::Entry& entry = shared.entries.entry[unit / tiles];
  const int32_t* slots = shared.route.slot + entry.index * MOEP_UNION_ROWS;
  store(args, entry, r, slots[r], column, total[0], total[2]);
  store(args, entry, r + 1, slots[r + 1], column, total[1], total[3]);
}

__device__ __forceinline__ moep::Operands load_x(uint32_t x) {
  moep::Operands out;
#pragma unroll
  for (int j = 0; j < 4; j++) out.word[j] = moep::ld_shared_v4(x + j * 64);
  return out;
}

template <bool kRing>
__device__ __forceinline__ void run_units(const moep_route_up_args& args,
                                          const Shared& shared,
                                          const uint8_t* xs,
                                          const uint8_t* rings) {
  const uint32_t k = args.up.hidden, tiles = args.up.inter / kColumns;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t all = shared.entries.count * tiles;
  const uint32_t begin = uint64_t{all} * blockIdx.x / gridDim.x;
  const uint32_t end = uint64_t{all} * (blockIdx.x + 1) / gridDim.x;
  const bool has_x = lane / 4 < args.route.rows.count;
  const uint32_t x0 =
      moep::shared_address(has_x ? xs + lane / 4 * x_pitch(k) : shared.zeros) +
      lane % 4 * 16;
  uint32_t x;

  const auto open = [&](uint32_t unit, moep::Cursor& cursor) {
    cursor.unit = unit;
    cursor.left = 0;
    if (unit >= end) return;
    const moep::Entry& entry = shared.entries.entry[unit / tiles];
    const uint32_t row = unit % tiles * kColumns;
    cursor.left = k / moep::kStageK;
    cursor.source = moep::ring_source(entry.low, entry.high, row, row, k);
  };
  moep::Ring ring = moep::ring_of_warp(rings);
  moep::Cursor cursor;
  if (kRing) moep::fill_ring(ring, cursor, begin + warp, open);
  for (uint32_t unit = begin + warp; unit < end; unit += blockDim.x / 32) {
    float total[4];
    x = x0;
    if (kRing) {
      moep::run_unit(
          k, ring, cursor, total,
          [&](int i) { return load_x(x + (has_x ? i : i % 4) * 256); },
          [&]() { x += has_x ? moep::kStageK * 2 : 0; }, open);
    } else {
      const moep::Entry& entry = shared.entries.entry[unit / tiles];
      const uint64_t row = unit % tiles * kColumns + lane / 4;
      moep::run_unit_direct(
          k, moep::nv_rows(entry.low, entry.high, row, row, k), total,
          [&](int j) { return moep::ld_shared_v4(x + j * 64); },
          [&]() { x += has_x ? MOEP_BLOCK_K * 2 : 0; });
    }
    finish_unit(args, shared, unit, total);
  }
}

// Zeros of h between inter and its padded width, for the slots that have an
// expert here.
__device__ __forceinline__ void pad_h(const moep_route_up_args& args,
                                      const Shared& shared) {
  const uint32_t inter = args.up.inter, padded = moep_padded_k(inter);
  const uint32_t topk = args.route.rule.topk;
  for (uint32_t i = blockIdx.x; i < shared.entries.count * MOEP_UNION_ROWS;
       i += gridDim.x) {
    const uint32_t u = shared.entries.entry[i / MOEP_UNION_ROWS].index;
    const uint32_t r = i % MOEP_UNION_ROWS;
    const int32_t j = shared.route.slot[u * MOEP_UNION_ROWS + r];
    if (j < 0) continue;
    const uint64_t slot =
        uint64_t{args.route.rows.begin + r} * topk + static_cast<uint32_t>(j);
    for (uint32_t k = inter + threadIdx.x; k < padded; k += blockDim.x) {
      args.up.h[slot * padded + h_place(k)] = 0;
    }
  }
}

// ids, weights, union and trace for whoever wants to see them: by one block.
__device__ __forceinline__ void publish(const moep_route_up_args& args,
                                        const moep::RouteShared& shared) {
  const moep_route_args& route = args.route;
  const uint32_t topk = route.rule.topk, slots = route.rows.count * topk;
  const uint64_t slot0 = uint64_t{route.rows.begin} * topk;
  const uint32_t end = moep_live_rows(route.rows.live_rows, route.rows.total);
  const uint64_t cursor =
      route.trace.cursor == nullptr ? 0 : *route.trace.cursor;
  for (uint32_t s = threadIdx.x; s < slots; s += blockDim.x) {
    route.ids[slot0 + s] = shared.ids[s];
    route.weights[slot0 + s] = shared.weights[s];
    if (route.trace.cursor == nullptr || route.rows.begin + s / topk >= end) {
      continue;
    }
    const uint64_t at =
        (cursor + s / topk) % route.trace.capacity * topk + s % topk;
    route.trace.ids[at] = shared.ids[s];
    route.trace.weights[at] = shared.weights[s];
  }
  for (uint32_t i = threadIdx.x;
       args.table.eid != nullptr && i < MOEP_UNION_ENTRIES * MOEP_UNION_ROWS;
       i += blockDim.x) {
    args.table.slot[i] = shared.slot[i];
    if (i < MOEP_UNION_ENTRIES) args.table.eid[i] = shared.eid[i];
  }
  __syncthreads();
  if (threadIdx.x != 0 || route.trace.cursor == nullptr) return;
  if (end <= route.rows.begin) return;
  *route.trace.cursor = cursor + min(end - route.rows.begin, route.rows.count);
}

template <bool kRing>
__global__ void __launch_bounds__(kMaxWarps * 32, 1)
    group_up_kernel(const __grid_constant__ moep_route_up_args args) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint8_t* xs = memory + moep_round_up(sizeof(Shared), 16);
  uint8_t* rings = xs + args.route.rows.count * x_pitch(args.up.hidden);
  // x comes from before the node before, which has waited for it.
  moep::prefetch_site(args.up.site, args.route.rule.experts);
  stage_x(args, shared, xs);
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  // The rings are not in use yet: room for the scores.
  moep::route_block(args.route, rings, shared.route);
  moep::find_entries(args.up.site, shared.route, shared.entries,
                     [](const moep_expert& expert, uint32_t u) {
                       return moep::Entry{expert.gate, expert.up, u};
                     });
  run_units<kRing>(args, shared, xs, rings);
  pad_h(args, shared);
  if (blockIdx.x == gridDim.x - 1) publish(args, shared.route);
}

using Kernel = void (*)(const moep_route_up_args);

Kernel kernel_of(const moep_route_up_args& args) {
  return args.up.hidden % moep::kStageK == 0 ? group_up_kernel<true>
                                             : group_up_kernel<false>;
}

cudaError_t launch_up(const moep_route_up_args& args,
                      const struct moep_launch* launch, cudaStream_t stream) {
  const size_t fixed = moep_round_up(sizeof(Shared), 16) +
                       args.route.rows.count * x_pitch(args.up.hidden);
  const uint32_t warps = moep::group_warps(*launch, fixed, kMaxWarps);
  return moep::launch<const moep_route_up_args>(
      kernel_of(args), args, *launch, warps * 32,
      fixed + size_t{warps} * moep::kRingBytes, stream);
}

cudaError_t load_up() {
  const cudaError_t error = moep::load(group_up_kernel<true>);
  return error != cudaSuccess ? error : moep::load(group_up_kernel<false>);
}

}  // namespace

cudaError_t moep_route_up_nvfp4_smxx(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  return launch_up(args->route_up, launch, stream);
}

cudaError_t moep_union_up_nvfp4_smxx(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  return launch_up(args->union_up, launch, stream);
}

cudaError_t moep_route_up_nvfp4_smxx_load(void) { return load_up(); }

cudaError_t moep_union_up_nvfp4_smxx_load(void) { return load_up(); }
