// ids[r], weights[r]: the topk experts of row r, from its logits or from outside
//
// Bound by the scores: an exp and two divisions for each expert and row. A warp
// has a row; scores and keys lie in shared memory. The grid is persistent.

#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/route_row.cuh"

namespace {

constexpr uint32_t kWarps = 4;
static_assert(kWarps * MOEP_MAX_EXPERTS * 8 <= 32 * 1024, "beside the static");

// What a warp works with: of one row.
struct RowMemory {
  float* scores;   // [experts]
  uint32_t* keys;  // [experts]
  int32_t* ids;    // [topk]
  float* weights;  // [topk]
};

template <uint32_t kKeys>
__device__ __forceinline__ void route_row(const moep_route_args& args,
                                          uint64_t row,
                                          const RowMemory& memory) {
  const moep_route_rule& rule = args.rule;
  const float* logits = args.logits + row * rule.experts;
  moep_softmax softmax = {0.0f, 0.0f};
  if (rule.scoring == moep_scoring_softmax) {
    softmax = moep::softmax_row(logits, rule.experts, memory.scores);
    __syncwarp();
  }
#pragma unroll 4
  for (uint32_t e = threadIdx.x % 32; e < rule.experts; e += 32) {
    const float score = moep_score(&rule, logits[e], &softmax);
    memory.scores[e] = score;
    memory.keys[e] = moep::selection_key(rule, args.site->bias, e, score);
  }
  __syncwarp();
  moep::select_row_of<kKeys>(rule, memory.scores, memory.keys, memory.ids,
                             memory.weights, [](uint32_t) {});
}

// The row's ids and weights, and its place in the trace ring.
__device__ __forceinline__ void store_row(const moep_route_args& args,
                                          uint64_t row, bool alive,
                                          const RowMemory& memory) {
  const uint32_t topk = args.rule.topk, j = threadIdx.x % 32;
  if (j >= topk) return;
  args.ids[row * topk + j] = memory.ids[j];
  args.weights[row * topk + j] = memory.weights[j];
  if (!alive || args.trace.cursor == nullptr) return;
  const uint64_t at = (*args.trace.cursor + row - args.rows.begin) %
                          args.trace.capacity * topk +
                      j;
  args.trace.ids[at] = memory.ids[j];
  args.trace.weights[at] = memory.weights[j];
}

template <uint32_t kKeys>
__global__ void __launch_bounds__(kWarps * 32)
    route_kernel(const __grid_constant__ moep_route_args args) {
  extern __shared__ float scores[];  // [kWarps, 2, experts]
  __shared__ int32_t ids[kWarps][MOEP_MAX_TOPK];
  __shared__ float weights[kWarps][MOEP_MAX_TOPK];
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint32_t warp = threadIdx.x / 32, experts = args.rule.experts;
  float* own = scores + warp * 2 * experts;
  const RowMemory memory = {own, reinterpret_cast<uint32_t*>(own + experts),
                            ids[warp], weights[warp]};
  const uint64_t end = args.rows.begin + args.rows.count;
  const uint64_t live = moep_rows_end(&args.rows);
  for (uint64_t row = args.rows.begin + blockIdx.x * kWarps + warp; row < end;
       row += gridDim.x * kWarps) {
    const bool alive = row < live;
    if (alive && args.external_ids == nullptr) {
      route_row<kKeys>(args, row, memory);
    } else {
      moep::copy_row(args, static_cast<uint32_t>(row), alive, memory.ids,
                     memory.weights);
    }
    __syncwarp();
    store_row(args, row, alive, memory);
    __syncwarp();
  }
}

}  // namespace

cudaError_t moep_route_f32_smxx(const union moep_args* args,
                                const struct moep_launch* launch,
                                cudaStream_t stream) {
  const uint32_t experts = args->route.rule.experts;
  return moep::launch<const moep_route_args>(
      experts <= moep::kFewKeys * 32 ? route_kernel<moep::kFewKeys>
                                     : route_kernel<moep::kManyKeys>,
      args->route, *launch, kWarps * 32, kWarps * 2 * sizeof(float) * experts,
      stream);
}

cudaError_t moep_route_f32_smxx_load(void) {
  const cudaError_t error = moep::load(route_kernel<moep::kFewKeys>);
  return error != cudaSuccess ? error
                              : moep::load(route_kernel<moep::kManyKeys>);
}
