#include "tests/gpu_ffn.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/kernels.h"

namespace moeplan_test {

namespace {

struct Launchers {
  moep_launch_fn up, down;
};

constexpr Launchers kLaunchers[] = {
    {moep_ffn_up_bf16_host, moep_ffn_down_bf16_host},
    {moep_ffn_up_bf16_smxx, moep_ffn_down_bf16_smxx},
    {moep_ffn_up_bf16_sm90, moep_ffn_down_bf16_sm90},
};

/* What the device of the test says. */
uint32_t attribute(cudaDeviceAttr which) {
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess);
  return static_cast<uint32_t>(value);
}

/* The first byte of `got` that is not that of `wanted`, or in a row from `rows`
 * on not poison. */
std::string first_difference(const char* stage, const DeviceMemory& got,
                             const DeviceMemory& wanted, size_t row_bytes,
                             uint32_t rows) {
  std::vector<uint8_t> a(got.bytes()), b(wanted.bytes());
  got.read(a.data(), a.size());
  wanted.read(b.data(), b.size());
  for (size_t i = 0; i < a.size(); i++) {
    const uint8_t expected = i < rows * row_bytes ? b[i] : 0xFF;
    if (a[i] == expected) continue;
    char text[120];
    std::snprintf(text, sizeof(text),
                  "%s, row %zu, byte %zu of %zu: 0x%02X, not 0x%02X\n", stage,
                  i / row_bytes, i % row_bytes, row_bytes, a[i], expected);
    return text;
  }
  return "";
}

}  // namespace

Ffn::Ffn(const dense_data& data, FfnKernel kernel, bool y_f32)
    : kernel_(kernel),
      shape_(data.shape),
      rows_(data.rows),
      y_f32_(y_f32),
      gate_(Memory(data.gate)),
      up_(Memory(data.up)),
      down_(Memory(data.down)),
      x_(Memory(data.x)),
      h_(Poisoned(size_t{rows_} * shape_.width * 2)),
      y_(Poisoned(size_t{rows_} * shape_.hidden * (y_f32 ? 4 : 2))),
      tap_up_(Poisoned(size_t{rows_} * shape_.width * 8)),
      tap_down_(Poisoned(size_t{rows_} * shape_.hidden * 4)),
      live_rows_(on_host(), sizeof(int32_t)) {
  moep_site_table site = {};
  site.ffn = {gate_.as<uint16_t>(), up_.as<uint16_t>(), down_.as<uint16_t>(),
              shape_.down_pitch};
  site_ = DeviceMemory(on_host(), sizeof(site), &site);
  if (kernel == FfnKernel::kSm90) {
    EXPECT_EQ(moep_ffn_up_bf16_sm90_load(), cudaSuccess);
    EXPECT_EQ(moep_ffn_down_bf16_sm90_load(), cudaSuccess);
  }
  if (kernel == FfnKernel::kSmxx) {
    EXPECT_EQ(moep_ffn_up_bf16_smxx_load(), cudaSuccess);
    EXPECT_EQ(moep_ffn_down_bf16_smxx_load(), cudaSuccess);
  }
}

void Ffn::SetLiveRows(int32_t live) {
  live_rows_.write(&live, sizeof(live));
  live_ = true;
}

void Ffn::Run(uint32_t begin, uint32_t count, uint32_t blocks) {
  const moep_rows rows = {begin, count, rows_,
                          live_ ? live_rows_.as<int32_t>() : nullptr};
  const Launchers& launchers = kLaunchers[static_cast<int>(kernel_)];
  moep_launch launch = {{blocks, 1}, 8, 0, 0};
  if (!on_host()) {
    if (blocks == 0) launch.grid[0] = attribute(cudaDevAttrMultiProcessorCount);
    launch.shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  }
  const auto* site = site_.as<const moep_site_table>();
  moep_args args = {};
  args.ffn_up = {rows,          {x_.as<uint16_t>(), shape_.hidden},
                 site,          h_.as<uint16_t>(),
                 shape_.hidden, shape_.width,
                 shape_.limit,  {}};
  args.ffn_up.tap.ffn_up = tap_up_.as<float>();
  EXPECT_EQ(launchers.up(&args, &launch, nullptr), cudaSuccess);
  args = {};
  args.ffn_down = {rows,
                   h_.as<uint16_t>(),
                   site,
                   {y_.as(), shape_.hidden, y_f32_ ? 1u : 0u},
                   shape_.hidden,
                   shape_.width,
                   {}};
  args.ffn_down.tap.ffn_down = tap_down_.as<float>();
  EXPECT_EQ(launchers.down(&args, &launch, nullptr), cudaSuccess);
  if (!on_host()) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

std::string Ffn::Difference(const Ffn& expected) const {
  return Difference(expected, rows_);
}

std::string Ffn::Difference(const Ffn& expected, uint32_t rows) const {
  const size_t width = shape_.width, hidden = shape_.hidden;
  return first_difference("gate and up", tap_up_, expected.tap_up_, width * 8,
                          rows) +
         first_difference("h", h_, expected.h_, width * 2, rows) +
         first_difference("down", tap_down_, expected.tap_down_, hidden * 4,
                          rows) +
         first_difference("y", y_, expected.y_, hidden * (y_f32_ ? 4 : 2),
                          rows);
}

DeviceMemory Ffn::Memory(const std::vector<uint16_t>& data) const {
  return DeviceMemory(on_host(), data.size() * 2, data.data());
}

DeviceMemory Ffn::Poisoned(size_t bytes) const {
  DeviceMemory memory(on_host(), bytes);
  memory.fill(0xFF);
  return memory;
}

}  // namespace moeplan_test
