// Device memory of the tests of routed sites: pieces between guards.

#ifndef MOEPLAN_TESTS_GPU_MEMORY_H_
#define MOEPLAN_TESTS_GPU_MEMORY_H_

#include <vector>

#include "tests/gpu_support.h"

#define EXPECT_CUDA(call)                                   \
  do {                                                      \
    const cudaError_t moep_error = (call);                  \
    EXPECT_EQ(moep_error, cudaSuccess)                      \
        << #call << ": " << cudaGetErrorString(moep_error); \
  } while (0)

#define EXPECT_MOEPLAN(call) EXPECT_EQ((call), moeplan_status_success) << #call

namespace moeplan_test {

// Pieces of one device allocation, 256-byte aligned, guards around each. Every
// bf16, float32 and scale of a guard is a NaN: reading past a piece shows too.
class GpuMemory {
 public:
  GpuMemory();

  // Add a piece before the first Upload; the offset is its name. Constant: a
  // kernel must not change it.
  size_t AddConstant(const void* data, size_t bytes);
  size_t AddOutput(const void* data, size_t bytes);
  size_t AddPoison(size_t bytes, uint8_t poison);

  // Every piece and guard as added, again after each call. Waits.
  void Upload();
  // Change a piece, here and there. Waits.
  void Write(size_t piece, const void* data, size_t bytes);
  void Download();
  // Of the last Download: guards and constant pieces are as uploaded.
  bool Intact() const;

  template <typename T>
  T* device(size_t piece) const {
    return reinterpret_cast<T*>(memory_.as<uint8_t>() + piece);
  }
  // The piece as it came with the last Download.
  const uint8_t* host(size_t piece) const { return now_.data() + piece; }

 private:
  struct Piece {
    size_t begin, bytes;
    bool constant;
  };
  size_t Add(const void* data, size_t bytes, bool constant);
  void AddGuard(size_t bytes);

  std::vector<Piece> pieces_;
  std::vector<uint8_t> image_, now_;
  DeviceMemory memory_;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_GPU_MEMORY_H_
