// What every launcher shares: its line of kernels.inc, the launch, the loading.

#ifndef MOEPLAN_KERNELS_LAUNCH_CUH_
#define MOEPLAN_KERNELS_LAUNCH_CUH_

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace moep {

// block_n<op>_<dtype>_<arch>: the columns of a block, as kernels.inc has them.
#define MOEP_HOST_KERNEL(op, dtype, block_n)
#define MOEP_CUDA_KERNEL(op, dtype, arch, min_sm, max_sm, min_rows, multiple, \
                         block_n, blocks)                                     \
  constexpr uint32_t block_n_##op##_##dtype##_##arch = block_n;
#include "kernels/kernels.inc"
#undef MOEP_HOST_KERNEL
#undef MOEP_CUDA_KERNEL

// How the blocks of a grid stand to each other.
struct Blocks {
  bool cooperative = false;  // start when there is room for all
  uint32_t cluster = 1;      // blocks of a cluster
};

// Launch `kernel` as planned. With launch.pdl it may start before the node
// before it ends: the kernel opens with griddepcontrol_wait.
template <typename Args>
cudaError_t launch(void (*kernel)(Args), const Args& args,
                   const moep_launch& launch, uint32_t threads,
                   size_t shared_bytes, cudaStream_t stream,
                   const Blocks& blocks = {}) {
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(launch.grid[0], launch.grid[1]);  // depth 1: unpack.h
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (launch.pdl != 0) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (blocks.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {blocks.cluster, 1, 1};
  }
  if (blocks.cooperative) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, args);
}

// Make the driver load the kernel's code now, not at its first launch, and let
// its blocks have all the shared memory that the current device gives one.
template <typename Args>
cudaError_t load(void (*kernel)(Args)) {
  const void* symbol = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, symbol);
  int device = 0, bytes = 0;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(
        &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(
      symbol, cudaFuncAttributeMaxDynamicSharedMemorySize,
      bytes - static_cast<int>(attributes.sharedSizeBytes));
}

}  // namespace moep

#endif  // MOEPLAN_KERNELS_LAUNCH_CUH_
