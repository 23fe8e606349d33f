// The kernels behind contract_probe.h. Each call allocates, launches, copies
// back and frees.

#include <cuda_runtime.h>

#include "kernels/ptx_sm80.cuh"
#include "tests/contract_probe.h"

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kLanes = 32;

// Device memory for the length of one call.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : error_(cudaMalloc(&data_, bytes)) {}
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  cudaError_t error() const { return error_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  cudaError_t error_;
};

// The launch's error, or that of the copy back, which waits for the kernel.
template <typename T>
cudaError_t copy_back(const Buffer& buffer, size_t count, T* out) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  return cudaMemcpy(out, buffer.as<T>(), count * sizeof(T),
                    cudaMemcpyDeviceToHost);
}

template <moep_probe probe>
__global__ void __launch_bounds__(kThreads)
    hash_kernel(uint32_t first_block, uint32_t indexes, uint64_t* hashes) {
  __shared__ uint64_t sums[kThreads];
  const uint64_t begin = uint64_t{first_block + blockIdx.x} * MOEP_PROBE_BLOCK;
  uint64_t sum = 0;
  for (uint32_t i = threadIdx.x; i < indexes; i += kThreads) {
    sum += moep_probe_term(begin + i, moep_probe_value(probe, begin + i));
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t i = 1; i < kThreads; i++) sum += sums[i];
  hashes[blockIdx.x] = sum;
}

template <moep_probe probe>
__global__ void __launch_bounds__(kThreads)
    values_kernel(uint64_t first, uint32_t count, uint32_t* values) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) values[i] = moep_probe_value(probe, first + i);
}

using HashKernel = void (*)(uint32_t, uint32_t, uint64_t*);
using ValuesKernel = void (*)(uint64_t, uint32_t, uint32_t*);

#define HASH_KERNEL(name, log2) hash_kernel<moep_probe_##name>,
constexpr HashKernel kHashKernels[] = {MOEP_PROBE_MAP(HASH_KERNEL)};
#undef HASH_KERNEL

#define VALUES_KERNEL(name, log2) values_kernel<moep_probe_##name>,
constexpr ValuesKernel kValuesKernels[] = {MOEP_PROBE_MAP(VALUES_KERNEL)};
#undef VALUES_KERNEL

__device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return moep::mul_bf16x2(a, b);
#else
  return moep::fma_rn_bf16x2(a, b, 0x80008000u);
#endif
}

__device__ __forceinline__ uint32_t twice(uint32_t half) {
  return half << 16 | half;
}

// Thread s, block w. Both halves of a register hold the same pair; the upper
// one is stored.
__global__ void products_kernel(moep_probe_product_table* products) {
  const uint32_t s = threadIdx.x, w = blockIdx.x;
  const uint32_t zero = 0x80008000u;
  const uint32_t weight = twice(moep_bf16_from_float(moep_e2m1_to_float(w)));
  const uint32_t scale = twice(moep_bf16_from_float(moep_block_scale(s)));
  products->plain_mul[w][s] = multiply(weight, scale) >> 16;
  products->plain_fma[w][s] = moep::fma_rn_bf16x2(weight, scale, zero) >> 16;

  const uint32_t unpacked = moep_unpack_e2m1(w << 16 | w).pair[0];
  const uint32_t codes = moep_unpack_e4m3(s << 16 | s);
  const uint32_t power = twice(moep_bf16_from_float(0x1p110f));
  const uint32_t big_mul = multiply(multiply(codes, power), power);
  products->unpacked_mul[w][s] = multiply(unpacked, big_mul) >> 16;
  const uint32_t big_fma =
      moep::fma_rn_bf16x2(moep::fma_rn_bf16x2(codes, power, zero), power, zero);
  products->unpacked_fma[w][s] =
      moep::fma_rn_bf16x2(unpacked, big_fma, zero) >> 16;
}

// k of this lane's slots 2t (slot 0), 2t + 1, 2t + 8, 2t + 9 (slot 3).
__device__ __forceinline__ uint32_t k_of_slot(moep_probe_order order,
                                              uint32_t slot) {
  const uint32_t t = threadIdx.x % 4;
  if (order == moep_probe_ring) {
    return t / 2 * 8 + t % 2 * 2 + slot % 2 + slot / 2 * 4;
  }
  return 2 * t + slot % 2 + slot / 2 * 8;
}

__device__ __forceinline__ uint32_t two_of(const uint16_t* row,
                                           moep_probe_order order,
                                           uint32_t slot) {
  return row[k_of_slot(order, slot)] |
         static_cast<uint32_t>(row[k_of_slot(order, slot + 1)]) << 16;
}

// One step: rows g and g + 8 of a, row g of b.
__device__ __forceinline__ void step(const uint16_t* low, const uint16_t* high,
                                     const uint16_t* b, moep_probe_order order,
                                     float (&d)[4]) {
  const uint32_t a[4] = {two_of(low, order, 0), two_of(high, order, 0),
                         two_of(low, order, 2), two_of(high, order, 2)};
  const uint32_t columns[2] = {two_of(b, order, 0), two_of(b, order, 2)};
  moep::mma_m16n8k16_bf16(d, a, columns);
}

// d: [16, 8] of this warp.
__device__ __forceinline__ void store(const float (&values)[4], float* d) {
  float* at = d + threadIdx.x / 4 * 8 + threadIdx.x % 4 * 2;
  at[0] = values[0];
  at[1] = values[1];
  at[64] = values[2];
  at[65] = values[3];
}

__global__ void steps_kernel(const moep_probe_step* steps,
                             moep_probe_order order, float* d) {
  const moep_probe_step& at = steps[blockIdx.x];
  float values[4] = {at.c, at.c, at.c, at.c};
  step(at.a, at.a, at.b, order, values);
  store(values, d + uint64_t{blockIdx.x} * 128);
}

// Block (tile of 16 rows, chain).
__global__ void chains_kernel(const moep_probe_chain* chains,
                              moep_probe_order order, float* d) {
  const moep_probe_chain& chain = chains[blockIdx.y];
  const uint32_t g = threadIdx.x / 4, first = blockIdx.x * 16;
  float values[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint32_t k = 0; k < 2048; k += 16) {
    step(&chain.a[first + g][k], &chain.a[first + g + 8][k], &chain.b[g][k],
         order, values);
  }
  store(values, d + (uint64_t{blockIdx.y} * 64 + first) * 8);
}

__global__ void policies_kernel(uint64_t* policies) {
  policies[0] = moep::evict_first();
  policies[1] = moep::createpolicy_evict_first();
}

}  // namespace

cudaError_t moep_probe_hash(enum moep_probe probe, uint32_t first_block,
                            uint32_t blocks, uint32_t indexes,
                            uint64_t* hashes_out) {
  const Buffer hashes(blocks * sizeof(uint64_t));
  if (hashes.error() != cudaSuccess) return hashes.error();
  kHashKernels[probe]<<<blocks, kThreads>>>(first_block, indexes,
                                            hashes.as<uint64_t>());
  return copy_back(hashes, blocks, hashes_out);
}

cudaError_t moep_probe_values(enum moep_probe probe, uint64_t first,
                              uint32_t count, uint32_t* values_out) {
  const Buffer values(count * sizeof(uint32_t));
  if (values.error() != cudaSuccess) return values.error();
  kValuesKernels[probe]<<<moep_ceil_div(count, kThreads), kThreads>>>(
      first, count, values.as<uint32_t>());
  return copy_back(values, count, values_out);
}

cudaError_t moep_probe_products(struct moep_probe_product_table* products_out) {
  const Buffer products(sizeof(*products_out));
  if (products.error() != cudaSuccess) return products.error();
  products_kernel<<<16, 127>>>(products.as<moep_probe_product_table>());
  return copy_back(products, 1, products_out);
}

cudaError_t moep_probe_policies(uint64_t policies_out[2]) {
  const Buffer policies(2 * sizeof(uint64_t));
  if (policies.error() != cudaSuccess) return policies.error();
  policies_kernel<<<1, 1>>>(policies.as<uint64_t>());
  return copy_back(policies, 2, policies_out);
}

cudaError_t moep_probe_steps(const struct moep_probe_step* steps,
                             uint32_t count, enum moep_probe_order order,
                             float* d_out) {
  const Buffer in(count * sizeof(*steps)), out(count * 128 * sizeof(float));
  if (in.error() != cudaSuccess) return in.error();
  if (out.error() != cudaSuccess) return out.error();
  const cudaError_t error = cudaMemcpy(
      in.as<void>(), steps, count * sizeof(*steps), cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return error;
  steps_kernel<<<count, kLanes>>>(in.as<const moep_probe_step>(), order,
                                  out.as<float>());
  return copy_back(out, size_t{count} * 128, d_out);
}

cudaError_t moep_probe_chains(const struct moep_probe_chain* chains,
                              uint32_t count, enum moep_probe_order order,
                              float* d_out) {
  const Buffer in(count * sizeof(*chains)), out(count * 512 * sizeof(float));
  if (in.error() != cudaSuccess) return in.error();
  if (out.error() != cudaSuccess) return out.error();
  const cudaError_t error = cudaMemcpy(
      in.as<void>(), chains, count * sizeof(*chains), cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return error;
  chains_kernel<<<dim3(4, count), kLanes>>>(in.as<const moep_probe_chain>(),
                                            order, out.as<float>());
  return copy_back(out, size_t{count} * 512, d_out);
}
