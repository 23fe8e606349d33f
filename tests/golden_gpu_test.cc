// Every stage of the case files on the GPU but h and the slots' outputs, which
// no group of rows keeps, has the hash of tests/golden/cases: by decode, verify,
// row_groups and prefill plans, and for the dense site by plans of all rows and of one.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/golden_stages.h"
#include "tests/gpu_site.h"

extern "C" {
#include "lib/binding.h"
#include "lib/enqueue.h"
}

namespace golden {
namespace {

using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;

class GoldenGpu : public testing::TestWithParam<const char*> {};

// From plans of at most `most` rows each.
Stages RoutedStages(CaseSite& site, GpuSite& gpu, moeplan_recipe recipe,
                    uint32_t most) {
  const moeplan_options options = Options().Recipe(recipe);
  Stages stages;
  for (uint32_t first = 0; first < site.rows(); first += most) {
    harness_run run = harness_rows(first, std::min(most, site.rows() - first));
    run.options = &options;
    const Result result = gpu.Run(run, GpuWay::kTap);
    EXPECT_EQ(result->status, moeplan_status_success) << gpu.log();
    if (result->status != moeplan_status_success) return stages;
    EXPECT_TRUE(result->guards_intact);
    stages.Add(site.config(), *result);
  }
  return stages;
}

TEST_P(GoldenGpu, RoutedStagesHaveTheirHashes) {
  MOEP_NEEDS_SM90();
  const std::string name = GetParam();
  CaseSite site(name, moeplan_site_routed);
  ASSERT_TRUE(site.ok());
  GpuSite gpu(site.site());
  const struct {
    const char* name;
    moeplan_recipe recipe;
    uint32_t most;
  } plans[] = {
      {"decode", moeplan_recipe_decode, 1},
      {"verify", moeplan_recipe_verify, gpu.VerifyCap()},
      {"row_groups", moeplan_recipe_row_groups, site.rows()},
      {"prefill", moeplan_recipe_prefill, site.rows()},
  };
  for (const auto& plan : plans) {
    const Stages stages = RoutedStages(site, gpu, plan.recipe, plan.most);
    EXPECT_EQ(stages.Named("routed").size(), kStages - 2u);
    ExpectGolden(name, "routed", stages, plan.name);
  }
  EXPECT_TRUE(gpu.WeightsIntact());
}

// ---- the dense site --------------------------------------------------------------

dense_data DenseData(CaseSite& site) {
  const moeplan_config& c = site.config();
  const harness& h = *site.parts();
  const size_t weights = size_t{c.hidden_size} * c.dense_local_intermediate;
  dense_data data(
      {c.hidden_size, c.dense_local_intermediate, 0, c.swiglu_limit, 0},
      site.rows(), 1);
  const auto copy = [](std::vector<uint16_t>* to, const void* from,
                       size_t count) {
    to->resize(count);
    std::memcpy(to->data(), from, count * sizeof(uint16_t));
  };
  copy(&data.gate, h.site.dense.gate, weights);
  copy(&data.up, h.site.dense.up, weights);
  copy(&data.down, h.site.dense.down, weights);
  copy(&data.x, h.x, size_t{site.rows()} * c.hidden_size);
  return data;
}

// From plans of `rows` rows each, with accumulators.
Stages DenseStages(DenseSite& dense, uint32_t total, uint32_t rows) {
  const size_t hidden = dense.config().hidden_size;
  const size_t width = dense.config().dense_local_intermediate;
  const size_t up_bytes = rows * 2 * width * sizeof(float);
  const size_t down_bytes = rows * hidden * sizeof(float);
  DeviceMemory up(false, up_bytes), down(false, down_bytes);
  moep_tap tap = {};
  tap.ffn_up = up.as<float>();
  tap.ffn_down = down.as<float>();
  const moeplan_options options = dense.options();
  moeplan_plan_t plan = nullptr;
  Stages stages;
  EXPECT_MOEPLAN(moeplan_plan_create(dense.planner(), rows, &options, &plan));
  if (plan == nullptr) return stages;
  dense.poison();
  std::vector<uint8_t> host(std::max(up_bytes, down_bytes));
  for (uint32_t first = 0; first < total; first += rows) {
    up.fill(0xFF);
    down.fill(0xFF);
    moeplan_binding binding = dense.binding(), checked;
    binding.x = static_cast<const uint16_t*>(binding.x) + first * hidden;
    binding.y = static_cast<uint16_t*>(binding.y) + first * hidden;
    EXPECT_MOEPLAN(moep_binding_read(plan, &binding, &checked));
    EXPECT_MOEPLAN(moep_enqueue_nodes(plan, &checked, &tap, nullptr));
    EXPECT_CUDA(cudaDeviceSynchronize());
    up.read(host.data(), up_bytes);
    stages.Add(kFfnUp, host.data(), up_bytes);
    down.read(host.data(), down_bytes);
    stages.Add(kFfnDown, host.data(), down_bytes);
  }
  moeplan_plan_destroy(plan);
  const std::vector<uint8_t> y = dense.y();
  stages.Add(kY, y.data(), y.size());
  return stages;
}

TEST_P(GoldenGpu, DenseStagesHaveTheirHashes) {
  MOEP_NEEDS_SM90();
  const std::string name = GetParam();
  CaseSite site(name, moeplan_site_dense);
  ASSERT_TRUE(site.ok());
  DenseSite dense(DenseData(site), "cuda:0", moeplan_dtype_bf16);
  for (uint32_t rows : {site.rows(), 1u}) {
    ExpectGolden(name, "dense", DenseStages(dense, site.rows(), rows),
                 std::to_string(rows) + " rows");
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenGpu, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace golden
