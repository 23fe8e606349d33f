// Routed sites on the GPU: every plan of every recipe gives each row the host's
// float32 accumulators, ids, weights and y. On a GPU other than sm_90 the row's own
// decode plan stands in for the host.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/gpu_site.h"

namespace {

using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

// Rows `first` .. by one plan, with accumulators.
void ExpectRows(GpuSite& gpu, uint32_t first, uint32_t rows,
                const moeplan_options& options, const char* what) {
  harness_run run = harness_rows(first, rows);
  run.options = &options;
  const Result result = gpu.Run(run, GpuWay::kTap);
  ASSERT_EQ(gpu.Difference(run, *result), "") << what;
}

constexpr moeplan_recipe kAnyRows[] = {
    moeplan_recipe_row_groups, moeplan_recipe_per_row, moeplan_recipe_prefill};

void ExpectRowsByEveryRecipe(GpuSite& gpu, uint32_t first, uint32_t rows) {
  ExpectRows(gpu, first, rows, Options().NoGrouped(), "by the rule");
  for (moeplan_recipe recipe : kAnyRows) {
    ExpectRows(gpu, first, rows, Options().Recipe(recipe), "any rows");
  }
  if (rows == 1) {
    ExpectRows(gpu, first, 1, Options().Recipe(moeplan_recipe_decode),
               "decode");
  }
  if (rows <= gpu.VerifyCap()) {
    ExpectRows(gpu, first, rows, Options().Recipe(moeplan_recipe_verify),
               "verify");
  }
}

void ExpectRowCounts(GpuSite& gpu, const std::vector<uint32_t>& counts) {
  ASSERT_NE(gpu.planner(), nullptr);
  for (uint32_t rows : counts) {
    const uint32_t first = rows * 5 % (gpu.parts().x_rows - rows + 1);
    ExpectRowsByEveryRecipe(gpu, first, rows);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_TRUE(gpu.WeightsIntact()) << gpu.name();
}

// A site as the harness makes it, changed, and on the GPU.
void ExpectSite(const harness& h, const std::vector<uint32_t>& counts,
                const std::function<void(harness*)>& change = nullptr) {
  Site host(h);
  if (change != nullptr) change(host.get());
  GpuSite gpu(host);
  ExpectRowCounts(gpu, counts);
}

// The harness owns these arrays; only the site's view of them is const.
template <typename T>
T* Writable(const void* data) {
  return static_cast<T*>(const_cast<void*>(data));
}

TEST(RoutedGpu, HasTheBitsOfTheHost) {
  MOEP_NEEDS_SM90();
  Site host(harness_of(harness_config(512, 256, 16, 4, 128), 1, 8));
  GpuSite gpu(host);
  const harness_run run = harness_rows(0, 8);
  const Result result = gpu.Run(run, GpuWay::kTap);
  const Result expected = host.Run(run);
  ASSERT_EQ(gpu.Difference(run, *result, expected.get()), "");
}

/* ---- shapes ---- */

struct Shape {
  uint32_t hidden, inter, experts, topk, width;
  int spread;
  uint32_t distinct;  // experts with bytes of their own; 0: all
  uint32_t longest;   // row count
  const char* name;
};

void PrintTo(const Shape& s, std::ostream* out) { *out << s.name; }

const std::vector<uint32_t> kCounts = {1,  2,  3,  4,  5,  6,  7,  8,  9,
                                       10, 11, 12, 13, 14, 15, 16, 17, 18,
                                       19, 20, 21, 22, 23, 24, 70};

class RoutedGpuShape : public testing::TestWithParam<Shape> {};

TEST_P(RoutedGpuShape, EveryPlanGivesEachRowItsBits) {
  MOEP_NEEDS_GPU();
  const Shape& s = GetParam();
  harness h =
      harness_of(harness_config(s.hidden, s.inter, s.experts, s.topk, s.width),
                 s.hidden + s.inter + s.experts, s.longest + 4);
  h.spread = s.spread;
  h.distinct_experts = s.distinct;
  std::vector<uint32_t> counts;
  for (uint32_t rows : kCounts) {
    if (rows <= s.longest) counts.push_back(rows);
  }
  ExpectSite(h, counts);
}

constexpr Shape kShapes[] = {
    {512, 512, 32, 8, 256, 2, 0, 70, "Base"},
    {4096, 2048, 24, 8, 512, 2, 5, 24, "Flash"},
    {6144, 512, 16, 8, 0, 2, 0, 16, "Wide"},
    {6144, 2048, 12, 8, 0, 12, 4, 8, "WideSpread"},
    {2560, 1536, 9, 4, 0, 2, 0, 17, "NineExperts"},
    {96, 48, 24, 8, 32, 2, 0, 70, "Small"},
    {208, 464, 20, 5, 112, 2, 0, 70, "OddWidths"},
    {2880, 1408, 12, 4, 96, 2, 0, 17, "Padded"},
    {16, 16, 1, 1, 16, 2, 0, 70, "Least"},
    {1040, 160, 65, 6, 48, 2, 0, 24, "MoreThan64Experts"},
    {512, 512, 16, 8, 256, 12, 0, 24, "Spread"},
    {2064, 208, 10, 3, 80, 12, 0, 24, "SpreadOverSegments"},
    {1024, 768, 1, 1, 0, 2, 0, 24, "OneExpert"},
    {256, 128, 7, 3, 64, 2, 0, 24, "SevenExperts"},
    {256, 256, 8, 8, 0, 2, 0, 24, "EveryExpert"},
    {272, 144, 63, 6, 0, 2, 0, 24, "Experts63"},
    {256, 128, 288, 8, 64, 2, 0, 24, "Experts288"},
    {128, 64, 384, 8, 32, 12, 0, 24, "Experts384"},
    {64, 32, 1024, 8, 16, 2, 0, 24, "Experts1024"},
    {256, 64, 40, 9, 16, 2, 0, 24, "Top9"},
    {64, 256, 40, 16, 16, 2, 0, 24, "Top16"},
    {128, 128, 1024, 32, 0, 2, 40, 24, "Top32"},
    {512, 4096, 4, 2, 2112, 2, 0, 17, "LongDown"},
    {512, 12288, 2, 2, 0, 12, 0, 8, "LongestDown"},
};

INSTANTIATE_TEST_SUITE_P(, RoutedGpuShape, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<Shape>& info) {
                           return std::string(info.param.name);
                         });

TEST(RoutedGpu, VerifyTakesEightRowsOfTheModelsInUse) {
  MOEP_NEEDS_SM90();
  for (uint32_t hidden : {4096u, 6144u}) {
    harness h = harness_of(harness_config(hidden, 32, 9, 8, 0), 2, 1);
    Site host(h);
    GpuSite gpu(host);
    EXPECT_EQ(gpu.VerifyCap(), 8u) << gpu.name();
  }
}

TEST(RoutedGpu, EveryUnionCapGivesTheSameBits) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(256, 128, 20, 5, 32), 3, 32));
  GpuSite gpu(host);
  for (uint32_t cap = 1; cap <= 8; cap++) {
    for (uint32_t rows : {2u, 3u, 8u, 9u, 30u}) {
      ExpectRows(gpu, 1, rows, Options().NoGrouped().RowBatchMax(cap), "cap");
      if (HasFatalFailure()) return;
    }
  }
}

/* ---- routing ---- */

TEST(RoutedGpu, RouterVariants) {
  MOEP_NEEDS_GPU();
  for (uint32_t variant = 0; variant < 16; variant++) {
    moeplan_config config = harness_config(256, 64, 48, 6, 32);
    config.scoring =
        variant & 1 ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
    config.norm_topk_prob = (variant & 2) != 0;
    config.router_bf16_ladder = (variant & 4) != 0;
    harness h = harness_of(config, 20 + variant, 24);
    h.no_bias = (variant & 8) != 0;
    ExpectSite(h, {1, 5, 8, 20});
    if (HasFatalFailure()) FAIL() << "variant " << variant;
  }
}

TEST(RoutedGpu, NoClampAndAnotherScalingFactor) {
  MOEP_NEEDS_GPU();
  moeplan_config config = harness_config(528, 208, 12, 4, 64);
  config.swiglu_limit = MOEPLAN_NO_SWIGLU_LIMIT;
  config.routed_scaling_factor = 0.3f;
  ExpectSite(harness_of(config, 40, 24), {1, 3, 8, 20});
  config.swiglu_limit = 0.25f;
  ExpectSite(harness_of(config, 41, 24), {1, 3, 8, 20});
}

// Equal scores everywhere: the lower id wins, at the edge of the pick too.
TEST(RoutedGpu, Ties) {
  MOEP_NEEDS_GPU();
  for (uint32_t apart : {1u, 3u, 32u}) {
    harness h = harness_of(harness_config(128, 64, 100, 8, 32), 50 + apart, 24);
    ExpectSite(h, {1, 4, 8, 20}, [&](harness* site) {
      auto* router = Writable<uint16_t>(site->site.router);
      auto* bias = Writable<float>(site->site.router_bias);
      for (uint32_t e = 0; e < 100; e++) {
        bias[e] = 7.25f;
        if (e >= apart)
          std::memcpy(router + e * 128, router + e % apart * 128, 256);
      }
    });
    if (HasFatalFailure()) FAIL() << "equal experts " << apart << " apart";
  }
}

TEST(RoutedGpu, ZeroRouter) {
  MOEP_NEEDS_GPU();
  for (bool negative : {false, true}) {
    ExpectSite(harness_of(harness_config(128, 64, 70, 8, 32), 60, 24),
               {1, 8, 20}, [&](harness* site) {
                 std::memset(Writable<uint8_t>(site->site.router_bias), 0,
                             70 * 4);
                 auto* router = Writable<uint16_t>(site->site.router);
                 for (uint32_t i = 0; i < 70 * 128; i++) {
                   router[i] = negative && i % 3 != 0 ? 0x8000 : 0;
                 }
               });
    if (HasFatalFailure()) FAIL() << "signed zeros " << negative;
  }
}

// s + bias keeps 2^-19 of s here, and 2^-3 on the ladder: many near ties.
TEST(RoutedGpu, BiasesNear30) {
  MOEP_NEEDS_GPU();
  for (bool ladder : {false, true}) {
    moeplan_config config = harness_config(256, 64, 256, 8, 32);
    config.router_bf16_ladder = ladder;
    ExpectSite(harness_of(config, 70, 30), {1, 8, 24}, [](harness* site) {
      harness_random random = {71};
      auto* bias = Writable<float>(site->site.router_bias);
      for (uint32_t e = 0; e < 256; e++) {
        bias[e] =
            30.0f + 0x1p-19f * static_cast<float>(harness_below(&random, 8));
      }
    });
    if (HasFatalFailure()) FAIL() << "ladder " << ladder;
  }
}

TEST(RoutedGpu, BiasesOfEverySignAndNaN) {
  MOEP_NEEDS_GPU();
  for (float value : {-30.0f, -INFINITY, INFINITY, NAN, 0.0f}) {
    ExpectSite(harness_of(harness_config(128, 64, 40, 8, 0), 72, 24),
               {1, 8, 20}, [&](harness* site) {
                 auto* bias = Writable<float>(site->site.router_bias);
                 for (uint32_t e = 0; e < 40; e++) {
                   bias[e] = e % 3 == 0 ? value : -bias[e];
                 }
               });
    if (HasFatalFailure()) FAIL() << "bias " << value;
  }
}

TEST(RoutedGpu, NullExperts) {
  MOEP_NEEDS_GPU();
  std::vector<uint8_t> some(24, 0), rest(24, 1), all(24, 1);
  for (uint32_t e = 0; e < 24; e += 3) some[e] = 1;
  rest[5] = 0;
  for (const auto* nulls : {&some, &rest, &all}) {
    for (uint32_t width : {0u, 48u}) {
      harness h = harness_of(harness_config(256, 208, 24, 8, width), 80, 24);
      h.null_experts = nulls->data();
      ExpectSite(h, {1, 2, 4, 8, 20});
      if (HasFatalFailure()) return;
    }
  }
}

/* ---- numbers that are not ---- */

// One kind of row each; its neighbours are ordinary.
void MakeSpecialRows(harness* site) {
  const uint32_t hidden = site->config.hidden_size;
  const auto row = [&](uint32_t r) { return site->x + r * hidden; };
  row(0)[3] = 0x7FC1;           // NaN
  row(2)[hidden - 1] = 0x7F80;  // infinity
  row(3)[0] = 0xFF80;
  row(3)[hidden - 2] = 0x7F80;  // both signs, segments apart
  for (uint32_t k = 0; k < hidden; k++) {
    row(5)[k] = 0;
    row(6)[k] = 0x8000;
    row(7)[k] = static_cast<uint16_t>(0x7F00 | (k % 2) << 15);  // 2^127
    row(9)[k] = 0xFFFF;
    row(10)[k] = static_cast<uint16_t>(k % 128 + 1);      // subnormal
    row(11)[k] = static_cast<uint16_t>(0x0080 + k % 64);  // near the least
  }
}

TEST(RoutedGpu, RowsOfNaNInfinityZeroAndSubnormals) {
  MOEP_NEEDS_GPU();
  for (moeplan_scoring scoring :
       {moeplan_scoring_sigmoid, moeplan_scoring_softmax}) {
    for (uint32_t hidden : {256u, 2320u}) {
      moeplan_config config = harness_config(hidden, 96, 20, 5, 48);
      config.scoring = scoring;
      ExpectSite(harness_of(config, 90, 24), {1, 2, 3, 4, 7, 8, 12, 20, 24},
                 MakeSpecialRows);
      if (HasFatalFailure()) return;
      config.swiglu_limit = MOEPLAN_NO_SWIGLU_LIMIT;
      ExpectSite(harness_of(config, 91, 24), {8, 24}, MakeSpecialRows);
      if (HasFatalFailure()) return;
    }
  }
}

// Scales of zero, of the least and the largest code, and epilogues that flush
// or overflow.
TEST(RoutedGpu, WeightsAtTheEndsOfTheirRange) {
  MOEP_NEEDS_GPU();
  ExpectSite(harness_of(harness_config(512, 96, 12, 4, 32), 92, 24), {1, 8, 20},
             [](harness* site) {
               const uint8_t scales[] = {0, 1, 7, 8, 0x7E, 56, 0x60, 0};
               const float epilogues[] = {0.0f, 0x1p-140f, 0x1p101f, 0x1p20f};
               for (moeplan_projection* p :
                    {&site->site.gate, &site->site.up, &site->site.down}) {
                 auto* scale_2 = const_cast<float*>(p->weight_scale_2);
                 for (uint32_t e = 0; e < 12; e++) {
                   auto* scale = Writable<uint8_t>(p->weight_scale[e]);
                   for (uint32_t i = 0; i < 512 * 96 / 16; i++) {
                     if (e % 2 == 0) scale[i] = scales[(i / 3 + e) % 8];
                   }
                   if (e % 3 == 0) scale_2[e] = epilogues[e / 3];
                 }
               }
               harness_write_site(site);
             });
}

}  // namespace
