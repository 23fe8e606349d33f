/* ffn_up and ffn_down with one set of tensors, by one of their kernels or on the
 * host: float32 accumulators before any rounding, h, and what rows they touch. */

#ifndef MOEPLAN_TESTS_GPU_FFN_H_
#define MOEPLAN_TESTS_GPU_FFN_H_

#include <string>
#include <vector>

#include "tests/gpu_support.h"

namespace moeplan_test {

enum class FfnKernel { kHost, kSmxx, kSm90 };

class Ffn {
 public:
  // With `y_f32` the result is float32, as the shared expert's is.
  Ffn(const dense_data& data, FfnKernel kernel, bool y_f32 = true);

  // Rows begin .. begin + count of all; `blocks` of a grid, 0: one for each SM.
  void Run(uint32_t begin, uint32_t count, uint32_t blocks = 0);

  void SetLiveRows(int32_t live);

  // "" or the first byte that is not that of `expected`; of the rows from `rows`
  // on, the first that was written.
  std::string Difference(const Ffn& expected) const;
  std::string Difference(const Ffn& expected, uint32_t rows) const;

 private:
  DeviceMemory Memory(const std::vector<uint16_t>& data) const;
  DeviceMemory Poisoned(size_t bytes) const;

  bool on_host() const { return kernel_ == FfnKernel::kHost; }

  FfnKernel kernel_;
  dense_shape shape_;
  uint32_t rows_;
  bool y_f32_;
  bool live_ = false;
  DeviceMemory gate_, up_, down_, x_, h_, y_, tap_up_, tap_down_, site_;
  DeviceMemory live_rows_;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_GPU_FFN_H_
