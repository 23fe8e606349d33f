// What the kernels of this folder work on: buffers, rows of x, the experts of a site.

#ifndef MOEPLAN_TESTS_EMULATION_SITE_H_
#define MOEPLAN_TESTS_EMULATION_SITE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "kernels/kernels.h"
#include "tests/emulation/device.h"

namespace emulation {

// Of what uploads give: aligned, poisoned.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count, int poison = 0xFF)
      : data_(static_cast<T*>(std::aligned_alloc(
                  256, (count * sizeof(T) + 511) / 256 * 256)),
              std::free),
        count_(count) {
    std::memset(data_.get(), poison, count * sizeof(T));
  }
  T* get() const { return data_.get(); }
  T& operator[](size_t i) const { return data_.get()[i]; }
  size_t size() const { return count_; }
  bool operator==(const Buffer& other) const {
    return std::memcmp(get(), other.get(), count_ * sizeof(T)) == 0;
  }

 private:
  std::unique_ptr<T, decltype(&std::free)> data_;
  size_t count_;
};

// bf16 from -2 to 2.
inline Buffer<uint16_t> RandomRows(size_t rows, size_t width,
                                   std::mt19937& random) {
  Buffer<uint16_t> x(rows * width);
  for (size_t i = 0; i < x.size(); i++) {
    const float value = static_cast<float>(random() % 4001) / 1000 - 2;
    x[i] = moep_bf16_from_float(value);
  }
  return x;
}

// Routed experts and their table, with the emulation's tensor maps. Expert 2 is on
// another rank where there are more than four.
class Experts {
 public:
  Experts(uint32_t hidden, uint32_t inter, uint32_t experts,
          std::mt19937& random)
      : weights_(size_t{experts} * 3 * hidden * inter / 2),
        scales_(size_t{experts} * 3 * hidden * inter / 16),
        table_(moep_site_mapped_bytes(experts), 0) {
    for (size_t i = 0; i < weights_.size(); i++) {
      weights_[i] = static_cast<uint8_t>(random());
    }
    for (size_t i = 0; i < scales_.size(); i++) scales_[i] = 40 + random() % 32;
    const size_t size = size_t{hidden} * inter;
    table()->expert_count = experts;
    table()->maps = moep_site_maps(experts);
    auto* maps =
        reinterpret_cast<moep_expert_maps*>(table_.get() + table()->maps);
    for (uint32_t e = 0; e < experts; e++) {
      if (experts > 4 && e == 2) continue;
      moep_expert& expert = table()->experts[e];
      moep_nvfp4* const matrices[] = {&expert.gate, &expert.up, &expert.down};
      for (uint32_t q = 0; q < 3; q++) {
        const size_t which = e * 3 + q;
        *matrices[q] = {
            weights_.get() + which * size / 2,
            scales_.get() + which * size / 16,
            moep_epilogue_scale(0.01f * static_cast<float>(1 + which % 5)), 0};
        moep_tensor_map* const map[] = {&maps[e].gate, &maps[e].up,
                                        &maps[e].down};
        const uint64_t k = q < 2 ? hidden : inter;
        map[q]->words[0] = reinterpret_cast<uint64_t>(matrices[q]->weight);
        map[q]->words[1] = q < 2 ? inter : hidden;
        map[q]->words[2] = k / 2;
      }
    }
  }
  moep_site_table* table() const {
    return reinterpret_cast<moep_site_table*>(table_.get());
  }

 private:
  Buffer<uint8_t> weights_, scales_, table_;
};

inline void Launch(moep_launch_fn kernel, const moep_args& args,
                   const moep_launch& launch) {
  EXPECT_EQ(kernel(&args, &launch, nullptr), cudaSuccess);
}

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_SITE_H_
