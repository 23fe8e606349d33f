// Tensor maps for the copy engine, made by the driver's function
// (no call on a stream: it may be used while one is captured).

#ifndef MOEPLAN_KERNELS_TENSOR_MAP_CUH_
#define MOEPLAN_KERNELS_TENSOR_MAP_CUH_

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace moep {

using TensorMapEncode = decltype(&cuTensorMapEncodeTiled);

// Asked for once; any thread may be first.
static inline cudaError_t tensor_map_load(TensorMapEncode* encode_out) {
  static void* known = nullptr;
  void* function = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (function == nullptr) {
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess) return error;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    __atomic_store_n(&known, function, __ATOMIC_RELEASE);
  }
  *encode_out = reinterpret_cast<TensorMapEncode>(function);
  return cudaSuccess;
}

// A matrix in memory; columns and pitch in bytes.
struct MappedMatrix {
  const void* data;
  CUtensorMapDataType type;
  uint32_t element_bytes;
  uint64_t rows, columns, pitch;
  CUtensorMapL2promotion promotion;
};

constexpr uint32_t kMapBoxBytes = 128;

// Boxes of [box_rows, kMapBoxBytes], swizzled by these; coordinates are in elements.
static inline cudaError_t tensor_map_encode(CUtensorMap* map,
                                            const MappedMatrix& matrix,
                                            uint32_t box_rows) {
  TensorMapEncode encode = nullptr;
  const cudaError_t error = tensor_map_load(&encode);
  if (error != cudaSuccess) return error;
  const cuuint64_t sizes[2] = {matrix.columns / matrix.element_bytes,
                               matrix.rows};
  const cuuint64_t strides[1] = {matrix.pitch};
  const cuuint32_t box[2] = {kMapBoxBytes / matrix.element_bytes, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = encode(
      map, matrix.type, 2, const_cast<void*>(matrix.data), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      matrix.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  // The runtime's errors have the driver's numbers.
  return static_cast<cudaError_t>(result);
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_TENSOR_MAP_CUH_
