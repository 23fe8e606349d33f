// Every stage of the case files on the host device has the hash of the files in
// tests/golden/cases, in one plan of all rows and in plans of one row. After a
// change that is meant, tests/update_golden_cases.sh writes them anew.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/golden_stages.h"

extern "C" {
#include "kernels/kset.h"
#include "lib/plan.h"
}

namespace golden {
namespace {

using moeplan_test::Options;
using moeplan_test::Result;

// What the workspace of a prefill plan holds: h and the slots' outputs.
class Prefill {
 public:
  Prefill(CaseSite& site, uint32_t first, uint32_t rows)
      : config_(site.config()) {
    const moeplan_options options = Options().Recipe(moeplan_recipe_prefill);
    EXPECT_EQ(
        moeplan_plan_create(site.parts()->planner, rows, &options, &plan_),
        moeplan_status_success);
    if (plan_ == nullptr) return;
    const size_t hidden = config_.hidden_size;
    memory_.assign(plan_->layout.total_bytes + MOEPLAN_WORKSPACE_ALIGNMENT,
                   0xFF);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    workspace_ = memory_.data() + (-address % MOEPLAN_WORKSPACE_ALIGNMENT);
    auto* y = static_cast<uint16_t*>(
        harness_allocate(site.parts(), rows * hidden * sizeof(uint16_t)));
    auto* x = static_cast<uint16_t*>(
        harness_allocate(site.parts(), rows * hidden * sizeof(uint16_t)));
    std::memcpy(x, site.parts()->x + first * hidden,
                rows * hidden * sizeof(uint16_t));
    moeplan_binding binding = MOEPLAN_BINDING_INIT;
    binding.site = site.parts()->blob;
    binding.x = x;
    binding.y = y;
    binding.workspace = workspace_;
    binding.workspace_bytes = plan_->layout.total_bytes;
    EXPECT_EQ(moeplan_enqueue(plan_, &binding, nullptr),
              moeplan_status_success);
  }
  ~Prefill() { moeplan_plan_destroy(plan_); }
  Prefill(const Prefill&) = delete;
  Prefill& operator=(const Prefill&) = delete;

  // From sorted p order to slot order and natural columns.
  void AddTo(Stages* stages) const {
    if (plan_ == nullptr) return;
    const auto* perm = Buffer<int32_t>(moep_buffer_token_to_perm);
    const auto* sorted_h = Buffer<uint16_t>(moep_buffer_expert_h);
    const auto* sorted_out = Buffer<uint16_t>(moep_buffer_slot_out);
    const size_t inter = config_.moe_intermediate_size;
    const size_t hidden = config_.hidden_size;
    const size_t padded = moep_padded_k(config_.moe_intermediate_size);
    const size_t slots = size_t{plan_->rows} * config_.num_experts_per_tok;
    std::vector<uint16_t> h(inter);
    for (size_t slot = 0; slot < slots; slot++) {
      ASSERT_GE(perm[slot], 0) << "slot " << slot << " is unfilled";
      ASSERT_LT(static_cast<size_t>(perm[slot]), slots);
      const auto at = static_cast<size_t>(perm[slot]);
      for (uint32_t k = 0; k < inter; k++) {
        h[k] = sorted_h[at * padded + moep_p_from_k(k)];
      }
      stages->Add(kH, h.data(), inter * sizeof(h[0]));
      stages->Add(kSlots, sorted_out + at * hidden, hidden * sizeof(h[0]));
    }
  }

 private:
  template <typename T>
  const T* Buffer(moep_buffer buffer) const {
    return reinterpret_cast<const T*>(workspace_ +
                                      plan_->layout.buffers[buffer].offset);
  }

  moeplan_config config_;
  moeplan_plan_t plan_ = nullptr;
  std::vector<uint8_t> memory_;
  uint8_t* workspace_ = nullptr;
};

// All stages, from plans of `rows` rows each.
Stages StagesOf(CaseSite& site, uint32_t rows) {
  const bool routed = site.config().kind == moeplan_site_routed;
  Stages stages;
  for (uint32_t first = 0; first < site.rows(); first += rows) {
    const Result result = site.site().Run(harness_rows(first, rows));
    EXPECT_EQ(result->status, moeplan_status_success) << site.site().log();
    if (result->status != moeplan_status_success) return stages;
    EXPECT_TRUE(result->guards_intact);
    stages.Add(site.config(), *result);
    if (routed) Prefill(site, first, rows).AddTo(&stages);
  }
  return stages;
}

class GoldenCases : public testing::TestWithParam<const char*> {};

TEST_P(GoldenCases, EveryStageHasItsHash) {
  const std::string name = GetParam();
  CaseSite routed(name, moeplan_site_routed), dense(name, moeplan_site_dense);
  ASSERT_TRUE(routed.ok() && dense.ok());
  const Stages of_routed = StagesOf(routed, routed.rows());
  const Stages of_dense = StagesOf(dense, dense.rows());
  EXPECT_EQ(of_routed.Named("routed").size(), size_t{kStages});
  EXPECT_EQ(of_dense.Named("dense").size(), 3u);
  if (const char* folder = std::getenv("MOEPLAN_UPDATE_GOLDEN_CASES")) {
    const std::string path = std::string(folder) + "/" + name + ".txt";
    std::ofstream file(path);
    file << of_routed.Lines("routed") << of_dense.Lines("dense");
    ASSERT_TRUE(file.good()) << path;
    return;
  }
  EXPECT_EQ(ReadFile(name).size(), kStages + 3u);
  ExpectGolden(name, "routed", of_routed, "all rows");
  ExpectGolden(name, "dense", of_dense, "all rows");
}

TEST_P(GoldenCases, RowsAloneHaveTheSameHashes) {
  const std::string name = GetParam();
  CaseSite routed(name, moeplan_site_routed), dense(name, moeplan_site_dense);
  ASSERT_TRUE(routed.ok() && dense.ok());
  ExpectGolden(name, "routed", StagesOf(routed, 1), "one row each");
  ExpectGolden(name, "dense", StagesOf(dense, 1), "one row each");
}

INSTANTIATE_TEST_SUITE_P(, GoldenCases, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

// The published test vectors of FNV-1a.
TEST(GoldenHash, IsFnv1a) {
  Hash empty, a, foobar;
  a.Add("a", 1);
  foobar.Add("foo", 3);
  foobar.Add("bar", 3);
  EXPECT_EQ(empty.text(), "cbf29ce484222325");
  EXPECT_EQ(a.text(), "af63dc4c8601ec8c");
  EXPECT_EQ(foobar.text(), "85944171f73967e8");
}

}  // namespace
}  // namespace golden
