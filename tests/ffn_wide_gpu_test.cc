/* The sm_90 kernels for many rows: the host's bits at every row count, whatever
 * the tile, the grid and the split, and those of one row alone. */

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "tests/gpu_ffn.h"

namespace {

using moeplan_test::Ffn;
using moeplan_test::FfnKernel;

constexpr uint32_t kRows = 1000;
constexpr uint32_t kCounts[] = {9, 16, 17, 64, 100, 256, 257, kRows};

struct WideCase {
  dense_shape shape;
  bool y_f32;
};

/* Whole and half tiles of both operations, one and several segments. */
constexpr WideCase kCases[] = {
    {{4096, 192, 0, MOEPLAN_NO_SWIGLU_LIMIT, -22}, false},
    {{2112, 320, 328, 10.0f, -20}, true},
    {{192, 4160, 4176, 4.0f, -12}, false},
    {{64, 12288, 0, MOEPLAN_NO_SWIGLU_LIMIT, -12}, true},
    {{12288, 64, 0, 2.0f, 0}, true},
    {{64, 64, 0, MOEPLAN_NO_SWIGLU_LIMIT, 0}, false},
};

/* A case's tensors and what the host makes of them, once for all tests. */
struct HostCase {
  explicit HostCase(const WideCase& wanted)
      : data(wanted.shape, kRows, 41),
        host(data, FfnKernel::kHost, wanted.y_f32) {
    host.Run(0, kRows);
  }
  const dense_data data;
  Ffn host;
};

const HostCase& host_case(const WideCase& wanted) {
  static std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<HostCase>> all;
  std::unique_ptr<HostCase>& one =
      all[{wanted.shape.hidden, wanted.shape.width}];
  if (one == nullptr) one = std::make_unique<HostCase>(wanted);
  return *one;
}

class FfnWideGpu : public testing::TestWithParam<WideCase> {
 protected:
  void SetUp() override {
    MOEP_NEEDS_SM90();
    case_ = &host_case(GetParam());
  }
  Ffn Make(FfnKernel kernel) const {
    return Ffn(case_->data, kernel, GetParam().y_f32);
  }
  const Ffn& host() const { return case_->host; }

 private:
  const HostCase* case_ = nullptr;
};

TEST_P(FfnWideGpu, EveryRowCountGivesTheHostsBits) {
  for (uint32_t rows : kCounts) {
    Ffn gpu = Make(FfnKernel::kSm90);
    gpu.Run(0, rows);
    ASSERT_EQ(gpu.Difference(host(), rows), "") << rows << " rows";
  }
}

TEST_P(FfnWideGpu, RowsGiveTheBitsOfOneRowAlone) {
  Ffn together = Make(FfnKernel::kSm90), alone = Make(FfnKernel::kSmxx);
  together.Run(0, 40);
  for (uint32_t row = 0; row < 40; row++) alone.Run(row, 1);
  EXPECT_EQ(together.Difference(alone), "");
}

TEST_P(FfnWideGpu, GridAndSplitChangeNoBit) {
  Ffn parts = Make(FfnKernel::kSm90);
  parts.Run(0, 1, 3);
  parts.Run(1, 129, 1);
  parts.Run(130, 300, 2);
  parts.Run(430, 65, 500);
  parts.Run(495, kRows - 495, 67);
  EXPECT_EQ(parts.Difference(host()), "");
}

TEST_P(FfnWideGpu, RowsPastLiveRowsAreUntouched) {
  for (int32_t live : {0, 1, 64, 65, 300, 999, 1000, 1 << 30, -1}) {
    const uint32_t rows = live < 0                              ? 0
                          : static_cast<uint32_t>(live) < kRows ? live
                                                                : kRows;
    Ffn gpu = Make(FfnKernel::kSm90);
    gpu.SetLiveRows(live);
    gpu.Run(0, kRows);
    ASSERT_EQ(gpu.Difference(host(), rows), "") << "live_rows " << live;
  }
}

TEST_P(FfnWideGpu, AHundredRunsGiveTheSameBits) {
  Ffn gpu = Make(FfnKernel::kSm90);
  for (uint32_t i = 0; i < 100; i++) gpu.Run(0, kRows);
  EXPECT_EQ(gpu.Difference(host()), "");
}

INSTANTIATE_TEST_SUITE_P(, FfnWideGpu, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<WideCase>& info) {
                           return std::to_string(info.param.shape.hidden) +
                                  "x" + std::to_string(info.param.shape.width);
                         });

/* Infinities, NaN, subnormals and zeros in every operand. */
TEST(FfnWideGpuSpecial, ValuesGiveTheHostsBits) {
  MOEP_NEEDS_SM90();
  dense_data data({2112, 192, 0, 10.0f, 0}, 300, 31);
  data.sprinkle_specials();
  Ffn gpu(data, FfnKernel::kSm90), host(data, FfnKernel::kHost);
  gpu.Run(0, 300);
  host.Run(0, 300);
  EXPECT_EQ(gpu.Difference(host), "");
}

/* A row of NaN or infinities is alone with them. */
TEST(FfnWideGpuSpecial, ABadRowSpoilsNoOther) {
  MOEP_NEEDS_SM90();
  dense_data data({4096, 128, 0, 10.0f, -22}, 200, 33);
  for (uint32_t row : {0u, 7u, 99u, 199u}) {
    for (uint32_t i = 0; i < 4096; i++) {
      data.x[row * 4096 + i] = row % 2 == 0 ? 0x7FC0 : 0x7F80;
    }
  }
  Ffn gpu(data, FfnKernel::kSm90, false), host(data, FfnKernel::kHost, false);
  gpu.Run(0, 200);
  host.Run(0, 200);
  EXPECT_EQ(gpu.Difference(host), "");
}

/* The widths that models have, against the kernel for few rows. */
TEST(FfnWideGpuLarge, GlmsDenseSiteGivesTheBitsOfFewRows) {
  MOEP_NEEDS_SM90();
  const dense_data data({4096, 12288, 0, 10.0f, -22}, 600, 35);
  Ffn wide(data, FfnKernel::kSm90, false),
      narrow(data, FfnKernel::kSmxx, false);
  wide.Run(0, 600);
  narrow.Run(0, 600);
  EXPECT_EQ(wide.Difference(narrow), "");
}

}  // namespace
