/* The kernels for few rows against the host, with the same arguments. */

#include <gtest/gtest.h>

#include "tests/gpu_ffn.h"

namespace {

using moeplan_test::Ffn;
using moeplan_test::FfnKernel;

constexpr uint32_t kRows = 37;

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
  Ffn gpu(data_, FfnKernel::kSmxx), host(data_, FfnKernel::kHost);
  gpu.Run(0, kRows);
  host.Run(0, kRows);
  EXPECT_EQ(gpu.Difference(host), "");
}

TEST_P(FfnGpu, OnlyTheNodesRowsAreTouched) {
  MOEP_NEEDS_SM90();
  Ffn gpu(data_, FfnKernel::kSmxx), host(data_, FfnKernel::kHost);
  gpu.Run(3, 11);
  host.Run(3, 11);
  EXPECT_EQ(gpu.Difference(host), "");
}

TEST_P(FfnGpu, GridAndSplitChangeNoBit) {
  MOEP_NEEDS_SM90();
  Ffn whole(data_, FfnKernel::kSmxx), parts(data_, FfnKernel::kSmxx);
  whole.Run(0, kRows);
  parts.Run(0, 1, 3);
  parts.Run(1, 8, 1);
  parts.Run(9, 9, 500);
  parts.Run(18, kRows - 18, 5);
  EXPECT_EQ(parts.Difference(whole), "");
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
  data.sprinkle_specials();
  Ffn gpu(data, FfnKernel::kSmxx), host(data, FfnKernel::kHost);
  gpu.Run(0, kRows);
  host.Run(0, kRows);
  EXPECT_EQ(gpu.Difference(host), "");
}

}  // namespace
