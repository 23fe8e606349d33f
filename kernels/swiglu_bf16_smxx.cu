// h[r, i] = bf16(swiglu(gate[r, i], up[r, i], limit))
//
// Memory-bound: 6 bytes move per element. A thread takes 8 adjacent columns: a
// 16-byte load of gate and of up, a 16-byte store. Widths are multiples of 16, so
// that rows follow each other without a gap and 8 columns never leave one; the
// grid strides over all rows as over one line.

#include "kernels/launch.cuh"
#include "kernels/ptx_sm80.cuh"
#include "kernels/scalar.h"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kColumns = 8;  // of a thread
static_assert(16 % kColumns == 0, "widths are multiples of 16");

__device__ __forceinline__ uint32_t swiglu_pair(uint32_t gate, uint32_t up,
                                                float limit) {
  const uint32_t low = moep_bf16_from_float(
      moep_swiglu(moep_bf16_to_float(static_cast<uint16_t>(gate)),
                  moep_bf16_to_float(static_cast<uint16_t>(up)), limit));
  const uint32_t high = moep_bf16_from_float(
      moep_swiglu(moep_bf16_to_float(static_cast<uint16_t>(gate >> 16)),
                  moep_bf16_to_float(static_cast<uint16_t>(up >> 16)), limit));
  return low | high << 16;
}

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const __grid_constant__ moep_swiglu_args args) {
  moep::griddepcontrol_wait();
  moep::griddepcontrol_launch_dependents();
  const uint64_t end = uint64_t{moep_rows_end(&args.rows)} * args.width;
  const uint64_t stride = uint64_t{gridDim.x} * kThreads * kColumns;
  uint64_t i = uint64_t{args.rows.begin} * args.width +
               (uint64_t{blockIdx.x} * kThreads + threadIdx.x) * kColumns;
  for (; i < end; i += stride) {
    const uint4 gate = *reinterpret_cast<const uint4*>(args.gate + i);
    const uint4 up = *reinterpret_cast<const uint4*>(args.up + i);
    uint4 h;
    h.x = swiglu_pair(gate.x, up.x, args.limit);
    h.y = swiglu_pair(gate.y, up.y, args.limit);
    h.z = swiglu_pair(gate.z, up.z, args.limit);
    h.w = swiglu_pair(gate.w, up.w, args.limit);
    *reinterpret_cast<uint4*>(args.h + i) = h;
  }
}

}  // namespace

cudaError_t moep_swiglu_bf16_smxx(const union moep_args* args,
                                  const struct moep_launch* launch,
                                  cudaStream_t stream) {
  return moep::launch<const moep_swiglu_args>(swiglu_kernel, args->swiglu,
                                              *launch, kThreads, 0, stream);
}

cudaError_t moep_swiglu_bf16_smxx_load(void) {
  return moep::load(swiglu_kernel);
}
