// A block of a product of few rows over all of its tiles, and its launch.

#ifndef MOEPLAN_KERNELS_NARROW_BLOCK_CUH_
#define MOEPLAN_KERNELS_NARROW_BLOCK_CUH_

#include "kernels/narrow.cuh"

namespace moep {

// One warp's jobs of a batch. `wait` returns once the rows may be read, and has
// them; weights are on their way before.
template <uint32_t kTiles, uint32_t kGroups, typename Wait>
__device__ __forceinline__ void narrow_jobs(const NarrowWeights& weights,
                                            const NarrowBatch& batch,
                                            uint32_t ring, float4* totals,
                                            const Wait& wait) {
  using Sizes = Narrow<kTiles, kGroups>;
  constexpr uint32_t kAhead = Sizes::kStages - 1;
  const uint32_t lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  NarrowFeed feed;
  narrow_open<kTiles>(feed, weights, batch, warp);
  const NarrowFeed start = feed;
#pragma unroll 1
  for (uint32_t i = 0; i < kAhead; i++) {
    narrow_copy_weights<kTiles>(feed, weights, ring + i * Sizes::kStageBytes);
    if (feed.left != 0) narrow_next<kTiles>(feed, weights, batch);
  }
  const NarrowRows rows = wait();
  feed = start;
#pragma unroll 1
  for (uint32_t i = 0; i < kAhead; i++) {
    narrow_copy_rows<kTiles, kGroups>(feed, rows,
                                      ring + i * Sizes::kStageBytes);
    cp_async_commit_group();
    if (feed.left != 0) narrow_next<kTiles>(feed, weights, batch);
  }

  const uint32_t groups = moep_ceil_div(rows.count, kGroupRows);
  uint32_t stage = 0, free = kAhead;
  for (uint32_t job = warp; job < batch.jobs; job += blockDim.x / kLanes) {
    const uint32_t segment = job % batch.segments;
    const uint32_t tile = job / batch.segments * kTiles;
    float sum[kTiles][kGroups][4] = {};
    uint32_t left =
        min(weights.k - segment * MOEP_SEGMENT_K, uint32_t{MOEP_SEGMENT_K});
#pragma unroll 1
    while (left != 0) {
      cp_async_wait_group<static_cast<int>(kAhead) - 1>();
      __syncwarp();
      const uint32_t to = ring + free * Sizes::kStageBytes;
      narrow_copy_weights<kTiles>(feed, weights, to);
      narrow_copy_rows<kTiles, kGroups>(feed, rows, to);
      cp_async_commit_group();
      if (feed.left != 0) narrow_next<kTiles>(feed, weights, batch);
      narrow_multiply<kTiles, kGroups>(ring + stage * Sizes::kStageBytes, left,
                                       groups, sum);
      left -= min(left, kNarrowK);
      free = stage;
      stage = stage + 1 == Sizes::kStages ? 0 : stage + 1;
    }
#pragma unroll
    for (uint32_t t = 0; t < kTiles; t++) {
      if (tile + t >= batch.count) break;
#pragma unroll
      for (uint32_t g = 0; g < kGroups; g++) {
        const uint32_t at =
            ((tile + t) * batch.segments + segment) * kGroups + g;
        totals[at * kLanes + lane] =
            make_float4(sum[t][g][0], sum[t][g][1], sum[t][g][2], sum[t][g][3]);
      }
    }
  }
  cp_async_wait_group<0>();
}

// All of a block's work. `store`(tile, first row, count, sum) takes the lane's
// part of a tile for 8 rows.
template <uint32_t kTiles, uint32_t kGroups, typename Store>
__device__ __forceinline__ void narrow_block(const moep_rows& node,
                                             const uint16_t* data,
                                             uint64_t stride,
                                             const NarrowWeights& weights,
                                             uint32_t tiles, uint32_t batch,
                                             const Store& store) {
  using Sizes = Narrow<kTiles, kGroups>;
  constexpr uint32_t kRows = kGroups * kGroupRows;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t warp = threadIdx.x / kLanes, warps = blockDim.x / kLanes;
  const uint32_t ring = shared_address(shared) + warp * Sizes::kRingBytes;
  auto* totals = reinterpret_cast<float4*>(shared + warps * Sizes::kRingBytes);
  const auto share = [&](uint32_t block) {
    return static_cast<uint32_t>(uint64_t{tiles} * block / gridDim.x);
  };
  const uint32_t first = share(blockIdx.x), last = share(blockIdx.x + 1);
  uint32_t end = node.begin + node.count;  // until live_rows may be read
  bool waited = false;
  for (uint32_t row = node.begin; row < end; row += kRows) {
    for (uint32_t tile = first; tile < last; tile += batch) {
      const NarrowBatch now =
          narrow_batch<kTiles>(tile, min(batch, last - tile), weights.k);
      narrow_jobs<kTiles, kGroups>(weights, now, ring, totals, [&] {
        if (!waited) {
          griddepcontrol_wait();
          griddepcontrol_launch_dependents();
          end = moep_rows_end(&node);
          waited = true;
        }
        const uint32_t count = row < end ? min(end - row, kRows) : 0;
        return NarrowRows{data + row * stride, stride, count};
      });
      __syncthreads();
      for (uint32_t i = warp; i < now.count * kGroups; i += warps) {
        const uint32_t from = row + i % kGroups * kGroupRows;
        if (from >= end) continue;
        store(tile + i / kGroups, from, end - from,
              narrow_sum<kGroups>(totals, now.segments, i / kGroups,
                                  i % kGroups));
      }
      __syncthreads();
    }
  }
}

// A block's tiles, jobs and warps, the same for all blocks.
template <uint32_t kTiles, uint32_t kGroups, typename Args>
cudaError_t launch_narrow(void (*kernel)(const NarrowArgs<Args>),
                          const Args& args, uint32_t tiles, uint32_t k,
                          const moep_launch& launch, cudaStream_t stream) {
  using Sizes = Narrow<kTiles, kGroups>;
  const uint32_t segments = segments_of(k);
  const uint32_t bytes = segments * Sizes::kTotalBytes;  // of a tile
  const uint32_t share = moep_ceil_div(tiles, launch.grid[0]);
  const uint32_t fit = kNarrowTotals / bytes / kTiles * kTiles;
  const uint32_t batch = share < fit ? share : fit;
  const uint32_t jobs = moep_ceil_div(batch, kTiles) * segments;
  const uint32_t room =
      (launch.shared_bytes - batch * bytes) / Sizes::kRingBytes;
  const uint32_t most = room < kNarrowWarps ? room : kNarrowWarps;
  const uint32_t warps = moep_ceil_div(jobs, moep_ceil_div(jobs, most));
  return moep::launch<const NarrowArgs<Args>>(
      kernel, {args, batch}, launch, warps * kLanes,
      warps * Sizes::kRingBytes + batch * bytes, stream);
}

// Two tiles a job when that leaves every warp a job, more than 8 rows a pass when
// there are more.
template <template <uint32_t, uint32_t> class Kernel, typename Args>
cudaError_t launch_narrow(const Args& args, uint32_t tiles, uint32_t k,
                          const moep_launch& launch, cudaStream_t stream) {
  const uint32_t segments = segments_of(k);
  const uint32_t share = moep_ceil_div(tiles, launch.grid[0]);
  const bool two = moep_ceil_div(share, 2) * segments >= kNarrowWarps;
  const auto fits = [&](uint32_t t, uint32_t total_bytes) {
    return t * segments * total_bytes <= kNarrowTotals;
  };
  if (args.rows.count > kGroupRows && fits(1, Narrow<1, 4>::kTotalBytes)) {
    if (two && fits(2, Narrow<2, 4>::kTotalBytes)) {
      return launch_narrow<2, 4>(Kernel<2, 4>::kernel, args, tiles, k, launch,
                                 stream);
    }
    return launch_narrow<1, 4>(Kernel<1, 4>::kernel, args, tiles, k, launch,
                               stream);
  }
  if (two && fits(2, Narrow<2, 1>::kTotalBytes)) {
    return launch_narrow<2, 1>(Kernel<2, 1>::kernel, args, tiles, k, launch,
                               stream);
  }
  return launch_narrow<1, 1>(Kernel<1, 1>::kernel, args, tiles, k, launch,
                             stream);
}

template <template <uint32_t, uint32_t> class Kernel>
cudaError_t load_narrow() {
  cudaError_t error = load(Kernel<1, 1>::kernel);
  if (error == cudaSuccess) error = load(Kernel<2, 1>::kernel);
  if (error == cudaSuccess) error = load(Kernel<1, 4>::kernel);
  if (error == cudaSuccess) error = load(Kernel<2, 4>::kernel);
  return error;
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_NARROW_BLOCK_CUH_
