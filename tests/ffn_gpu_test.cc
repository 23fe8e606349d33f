/* ffn_up and ffn_down on the GPU and on the host with the same arguments:
 * float32 accumulators before any rounding, h, and what rows they touch. */

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/gpu_support.h"

namespace {

constexpr uint32_t kRows = 21;

/* Both operations on one device over the row ranges given. */
class Ffn {
 public:
  Ffn(const dense_data& data, bool on_host)
      : on_host_(on_host),
        shape_(data.shape),
        gate_(memory(data.gate)),
        up_(memory(data.up)),
        down_(memory(data.down)),
        x_(memory(data.x)),
        h_(poisoned(size_t{kRows} * shape_.width * 2)),
        y_(poisoned(size_t{kRows} * shape_.hidden * 4)),
        tap_up_(poisoned(size_t{kRows} * shape_.width * 8)),
        tap_down_(poisoned(size_t{kRows} * shape_.hidden * 4)) {
    moep_site_table site = {};
    site.ffn = {gate_.as<uint16_t>(), up_.as<uint16_t>(), down_.as<uint16_t>(),
                shape_.down_pitch};
    site_ = DeviceMemory(on_host, sizeof(site), &site);
  }

  /* A grid of x by y blocks; both 0: what covers everything. */
  void run(uint32_t begin, uint32_t count, uint32_t x = 0, uint32_t y = 0) {
    const moep_rows rows = {begin, count, kRows, nullptr};
    const uint32_t groups = y != 0 ? y : moep_ceil_div(count, 8);
    moep_args args = {};
    args.ffn_up = {rows,          {x_.as<uint16_t>(), shape_.hidden},
                   table(),       h_.as<uint16_t>(),
                   shape_.hidden, shape_.width,
                   shape_.limit,  {}};
    args.ffn_up.tap.ffn_up = tap_up_.as<float>();
    moep_launch launch = {
        {x != 0 ? x : moep_ceil_div(shape_.width, 8), groups}, 8, 0, 0};
    EXPECT_EQ((on_host_ ? moep_ffn_up_bf16_host : moep_ffn_up_bf16_smxx)(
                  &args, &launch, nullptr),
              cudaSuccess);
    args = {};
    args.ffn_down = {
        rows,          h_.as<uint16_t>(), table(), {y_.as(), shape_.hidden, 1},
        shape_.hidden, shape_.width,      {}};
    args.ffn_down.tap.ffn_down = tap_down_.as<float>();
    launch.grid[0] = x != 0 ? x : moep_ceil_div(shape_.hidden, 8);
    EXPECT_EQ((on_host_ ? moep_ffn_down_bf16_host : moep_ffn_down_bf16_smxx)(
                  &args, &launch, nullptr),
              cudaSuccess);
    if (!on_host_) {
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }

  std::vector<uint32_t> gate_up() const { return words(tap_up_); }
  std::vector<uint32_t> h() const { return words(h_); }
  std::vector<uint32_t> down() const { return words(tap_down_); }
  std::vector<uint32_t> y() const { return words(y_); }

 private:
  DeviceMemory memory(const std::vector<uint16_t>& data) const {
    return DeviceMemory(on_host_, data.size() * 2, data.data());
  }

  DeviceMemory poisoned(size_t bytes) const {
    DeviceMemory memory(on_host_, bytes);
    memory.fill(0xFF);
    return memory;
  }

  const moep_site_table* table() const {
    return site_.as<const moep_site_table>();
  }

  static std::vector<uint32_t> words(const DeviceMemory& memory) {
    std::vector<uint32_t> result(memory.bytes() / 4);
    memory.read(result.data(), memory.bytes());
    return result;
  }

  bool on_host_;
  dense_shape shape_;
  DeviceMemory gate_, up_, down_, x_, h_, y_, tap_up_, tap_down_, site_;
};

/* "" or the first word that differs. */
std::string difference(const char* stage, const std::vector<uint32_t>& gpu,
                       const std::vector<uint32_t>& host) {
  for (size_t i = 0; i < gpu.size(); i++) {
    if (gpu[i] == host[i]) continue;
    char text[120];
    std::snprintf(text, sizeof(text),
                  "%s, word %zu of %zu: 0x%08X, host 0x%08X", stage, i,
                  gpu.size(), gpu[i], host[i]);
    return text;
  }
  return "";
}

void expect_same(const Ffn& gpu, const Ffn& host) {
  EXPECT_EQ(difference("gate and up", gpu.gate_up(), host.gate_up()), "");
  EXPECT_EQ(difference("h", gpu.h(), host.h()), "");
  EXPECT_EQ(difference("down", gpu.down(), host.down()), "");
  EXPECT_EQ(difference("y", gpu.y(), host.y()), "");
}

constexpr dense_shape kShapes[] = {
    {4096, 208, 0, MOEPLAN_NO_SWIGLU_LIMIT, -22},
    {6160, 96, 0, 10.0f, 0},
    {12288, 16, 0, MOEPLAN_NO_SWIGLU_LIMIT, -20},
    {144, 12288, 0, MOEPLAN_NO_SWIGLU_LIMIT, -12},
    {80, 34800, 34808, 4.0f, -12},
    {528, 2880, 3000, 2.0f, -20},
    {16, 16, 0, MOEPLAN_NO_SWIGLU_LIMIT, 0},
};

class FfnGpu : public testing::TestWithParam<dense_shape> {
 protected:
  const dense_data data_{GetParam(), kRows, 23};
};

TEST_P(FfnGpu, AccumulatorsAreTheHosts) {
  MOEP_NEEDS_SM90();
  Ffn gpu(data_, false), host(data_, true);
  gpu.run(0, kRows);
  host.run(0, kRows);
  expect_same(gpu, host);
}

TEST_P(FfnGpu, OnlyTheNodesRowsAreTouched) {
  MOEP_NEEDS_SM90();
  Ffn gpu(data_, false), host(data_, true);
  gpu.run(3, 11);
  host.run(3, 11);
  expect_same(gpu, host);
}

TEST_P(FfnGpu, GridAndSplitChangeNoBit) {
  MOEP_NEEDS_SM90();
  Ffn whole(data_, false), parts(data_, false);
  whole.run(0, kRows);
  parts.run(0, 1, 3, 1);
  parts.run(1, 9, 1, 7);
  parts.run(10, 11, 5, 1);
  expect_same(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(, FfnGpu, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<dense_shape>& info) {
                           return std::to_string(info.param.hidden) + "x" +
                                  std::to_string(info.param.width);
                         });

/* Infinities, NaN, subnormals and zeros in every operand. */
TEST(FfnGpuSpecial, ValuesGiveTheHostsBits) {
  MOEP_NEEDS_SM90();
  dense_data data({2080, 96, 0, 10.0f, 0}, kRows, 31);
  const uint16_t special[] = {0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x0001,
                              0x807F, 0x0000, 0x8000, 0x7F7F, 0xFF7F};
  const auto sprinkle = [&](std::vector<uint16_t>* tensor, size_t every) {
    for (size_t i = every / 2, n = 0; i < tensor->size(); i += every, n++) {
      (*tensor)[i] = special[n % 10];
    }
  };
  sprinkle(&data.gate, 8219);
  sprinkle(&data.up, 8087);
  sprinkle(&data.down, 1531);
  sprinkle(&data.x, 4093);
  Ffn gpu(data, false), host(data, true);
  gpu.run(0, kRows);
  host.run(0, kRows);
  expect_same(gpu, host);
}

}  // namespace
