// sort_count:   counts[tile, e] = slots of expert e in the tile's 1024
// sort_scan:    counts[tile, e] = the position of the first of them
// sort_scatter: sorted_slots[position] = slot, token_to_perm[slot] = position
//
// A stable counting sort; unfilled slots have no position. Bound by latency: a
// block has a tile, the only block of its grid scans.

#include "kernels/args.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"

namespace {

constexpr uint32_t kThreads = MOEP_SORT_TILE;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kAhead = 8;  // loads in flight of a thread that scans
static_assert(MOEP_MAX_EXPERTS <= kThreads, "a thread an expert");
static_assert(kWarps == 32, "one warp scans the sums of all");

__device__ __forceinline__ uint32_t tiles_of(const moep_sort_args& args) {
  return moep_ceil_div(args.slots, MOEP_SORT_TILE);
}

__global__ void __launch_bounds__(kThreads)
    count_kernel(const __grid_constant__ moep_sort_args args) {
  __shared__ uint32_t counts[MOEP_MAX_EXPERTS];
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t i = threadIdx.x;
  for (uint32_t tile = blockIdx.x; tile < tiles_of(args); tile += gridDim.x) {
    const uint32_t slot = tile * MOEP_SORT_TILE + i;
    if (i < args.experts) counts[i] = 0;
    __syncthreads();
    const int32_t id = slot < args.slots ? args.ids[slot] : -1;
    if (id >= 0) atomicAdd(&counts[id], 1);
    __syncthreads();
    if (i < args.experts) {
      args.counts[uint64_t{tile} * args.experts + i] = counts[i];
    }
    __syncthreads();
  }
}

// Sum over the block's threads before this one; `total`: over all.
__device__ __forceinline__ uint32_t scan_block(uint32_t value,
                                               uint32_t& total) {
  __shared__ uint32_t sums[kWarps + 1];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = value;
  for (uint32_t apart = 1; apart < 32; apart *= 2) {
    const uint32_t below = __shfl_up_sync(~0u, sum, apart);
    if (lane >= apart) sum += below;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const uint32_t own = sums[lane];
    uint32_t all = own;
    for (uint32_t apart = 1; apart < 32; apart *= 2) {
      const uint32_t below = __shfl_up_sync(~0u, all, apart);
      if (lane >= apart) all += below;
    }
    sums[lane] = all - own;
    if (lane == 31) sums[kWarps] = all;
  }
  __syncthreads();
  total = sums[kWarps];
  return sums[warp] + sum - value;
}

// The tiles that a thread scans for its expert: every expert's are divided among
// as many threads as there are for it.
struct Part {
  uint32_t expert, index, parts;
  uint32_t first, last;  // tiles
};

__device__ __forceinline__ Part part_of_thread(const moep_sort_args& args) {
  const uint32_t parts = min(kThreads / args.experts, tiles_of(args));
  const uint32_t each = moep_ceil_div(tiles_of(args), parts);
  // Neighbours have neighbouring experts: they read one line.
  const uint32_t expert = threadIdx.x % args.experts;
  const uint32_t index = threadIdx.x / args.experts;
  const uint32_t first = min(index * each, tiles_of(args));
  const uint32_t last = min(first + each, tiles_of(args));
  return {expert, index, parts, first, index < parts ? last : first};
}

__device__ __forceinline__ uint32_t sum_part(const uint32_t* counts,
                                             uint32_t experts,
                                             const Part& part) {
  uint32_t sum = 0;
#pragma unroll kAhead
  for (uint32_t tile = part.first; tile < part.last; tile++) {
    sum += counts[uint64_t{tile} * experts];
  }
  return sum;
}

__device__ __forceinline__ void scan_part(uint32_t* counts, uint32_t experts,
                                          const Part& part, uint32_t position) {
  for (uint32_t first = part.first; first < part.last; first += kAhead) {
    uint32_t here[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
      const uint64_t at = uint64_t{first + i} * experts;
      here[i] = first + i < part.last ? counts[at] : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
      const uint64_t at = uint64_t{first + i} * experts;
      if (first + i < part.last) counts[at] = position;
      position += here[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    scan_kernel(const __grid_constant__ moep_sort_args args) {
  __shared__ uint32_t sums[kThreads];  // [parts, experts], then before each
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t i = threadIdx.x;
  const Part part = part_of_thread(args);
  uint32_t* counts = args.counts + part.expert;
  sums[i] = sum_part(counts, args.experts, part);
  __syncthreads();
  uint32_t own = 0, total;
  for (uint32_t p = 0; p < part.parts && i < args.experts; p++) {
    own += sums[p * args.experts + i];
  }
  uint32_t position = scan_block(own, total);
  if (i < args.experts) {
    args.expert_offsets[i] = position;
    for (uint32_t p = 0; p < part.parts; p++) {
      const uint32_t here = sums[p * args.experts + i];
      sums[p * args.experts + i] = position;
      position += here;
    }
  }
  __syncthreads();
  scan_part(counts, args.experts, part, sums[i]);
  if (i != 0) return;
  args.expert_offsets[args.experts] = total;
  if (args.trace_cursor != nullptr) {
    *args.trace_cursor += moep_rows_alive(&args.rows);
  }
}

// The warps of a tile take their positions one after another.
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const __grid_constant__ moep_sort_args args) {
  __shared__ uint32_t next[MOEP_MAX_EXPERTS];
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t i = threadIdx.x, below = (1u << i % 32) - 1;
  for (uint32_t tile = blockIdx.x; tile < tiles_of(args); tile += gridDim.x) {
    if (i < args.experts) {
      next[i] = args.counts[uint64_t{tile} * args.experts + i];
    }
    const uint32_t slot = tile * MOEP_SORT_TILE + i;
    const int32_t id = slot < args.slots ? args.ids[slot] : -1;
    const uint32_t equal = __match_any_sync(~0u, id);
    uint32_t position = 0;
    for (uint32_t warp = 0; warp < kWarps; warp++) {
      __syncthreads();
      if (warp != i / 32) continue;
      if (id >= 0) position = next[id] + __popc(equal & below);
      __syncwarp();
      if (id >= 0 && (equal & below) == 0) next[id] += __popc(equal);
    }
    if (slot < args.slots) {
      args.token_to_perm[slot] = id < 0 ? -1 : static_cast<int32_t>(position);
    }
    if (id >= 0) args.sorted_slots[position] = static_cast<int32_t>(slot);
    __syncthreads();
  }
}

}  // namespace

cudaError_t moep_sort_count_i32_smxx(const union moep_args* args,
                                     const struct moep_launch* launch,
                                     cudaStream_t stream) {
  return moep::launch<const moep_sort_args>(count_kernel, args->sort_count,
                                            *launch, kThreads, 0, stream);
}

cudaError_t moep_sort_scan_i32_smxx(const union moep_args* args,
                                    const struct moep_launch* launch,
                                    cudaStream_t stream) {
  return moep::launch<const moep_sort_args>(scan_kernel, args->sort_scan,
                                            *launch, kThreads, 0, stream);
}

cudaError_t moep_sort_scatter_i32_smxx(const union moep_args* args,
                                       const struct moep_launch* launch,
                                       cudaStream_t stream) {
  return moep::launch<const moep_sort_args>(scatter_kernel, args->sort_scatter,
                                            *launch, kThreads, 0, stream);
}

cudaError_t moep_sort_count_i32_smxx_load(void) {
  return moep::load(count_kernel);
}
cudaError_t moep_sort_scan_i32_smxx_load(void) {
  return moep::load(scan_kernel);
}
cudaError_t moep_sort_scatter_i32_smxx_load(void) {
  return moep::load(scatter_kernel);
}
