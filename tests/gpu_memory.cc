#include "tests/gpu_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

namespace moeplan_test {

namespace {

constexpr size_t kAlignment = 256, kGuardBytes = 1024;
constexpr uint32_t kGuardWord = 0x7FE5FFE5;  // no NaN that is ever stored

}  // namespace

GpuMemory::GpuMemory() { AddGuard(kGuardBytes); }

void GpuMemory::AddGuard(size_t bytes) {
  const size_t begin = image_.size();
  image_.resize(begin + bytes);
  const auto* word = reinterpret_cast<const uint8_t*>(&kGuardWord);
  for (size_t i = begin; i < image_.size(); i++) image_[i] = word[i % 4];
}

size_t GpuMemory::Add(const void* data, size_t bytes, bool constant) {
  const size_t begin = image_.size();
  const auto* from = static_cast<const uint8_t*>(data);
  image_.insert(image_.end(), from, from + bytes);
  AddGuard((kAlignment - bytes % kAlignment) % kAlignment + kGuardBytes);
  pieces_.push_back({begin, bytes, constant});
  return begin;
}

size_t GpuMemory::AddConstant(const void* data, size_t bytes) {
  return Add(data, bytes, true);
}

size_t GpuMemory::AddOutput(const void* data, size_t bytes) {
  return Add(data, bytes, false);
}

size_t GpuMemory::AddPoison(size_t bytes, uint8_t poison) {
  const std::vector<uint8_t> data(bytes, poison);
  return AddOutput(data.data(), bytes);
}

void GpuMemory::Upload() {
  if (memory_.bytes() == 0) memory_ = DeviceMemory(false, image_.size());
  memory_.write(image_.data(), image_.size());
  EXPECT_CUDA(cudaDeviceSynchronize());
}

void GpuMemory::Write(size_t piece, const void* data, size_t bytes) {
  std::memcpy(&image_[piece], data, bytes);
  EXPECT_CUDA(cudaMemcpy(device<void>(piece), data, bytes, cudaMemcpyDefault));
  EXPECT_CUDA(cudaDeviceSynchronize());
}

void GpuMemory::Download() {
  now_.resize(image_.size());
  memory_.read(now_.data(), now_.size());
}

bool GpuMemory::Intact() const {
  const auto same = [&](size_t begin, size_t end) {
    return std::memcmp(&image_[begin], &now_[begin], end - begin) == 0;
  };
  size_t at = 0;
  for (const Piece& piece : pieces_) {
    if (!same(at, piece.begin)) return false;
    at = piece.constant ? piece.begin : piece.begin + piece.bytes;
  }
  return same(at, image_.size());
}

}  // namespace moeplan_test
