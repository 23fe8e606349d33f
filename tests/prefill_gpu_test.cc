// The prefill recipe on the GPU: sorted by expert, in tiles, each row has the
// host's float32 accumulators, ids, weights and y, by graph and by host dispatch.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/gpu_site_run.h"

namespace {

using moeplan_test::GpuRun;
using moeplan_test::GpuSite;
using moeplan_test::GpuWay;
using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

const char* const kTiles[] = {"base", "n8",  "n16", "n32",  "n48",
                              "n64",  "n80", "n96", "n128", "n256"};

moeplan_options Prefill(const char* tile = nullptr) {
  return Options().Recipe(moeplan_recipe_prefill).Tile(tile);
}

// Each row is what it is alone, or in `expected`.
void ExpectRun(GpuSite& gpu, harness_run run, const moeplan_options& options,
               GpuWay way = GpuWay::kTap,
               const harness_result* expected = nullptr) {
  run.options = &options;
  const Result result = gpu.Run(run, way);
  ASSERT_EQ(gpu.Difference(run, *result, expected), "")
      << moeplan_test::gpu_way_name(way) << ", tile "
      << (options.tile == nullptr ? "by rule" : options.tile)
      << ", host_dispatch " << options.host_dispatch;
}

// By the rule, by the plain kernels, and an expert at a time.
void ExpectRows(GpuSite& gpu, uint32_t first, uint32_t rows) {
  const harness_run run = harness_rows(first, rows);
  ExpectRun(gpu, run, Prefill());
  ExpectRun(gpu, run, Prefill("base"));
  ExpectRun(gpu, run, Options().HostDispatch(), GpuWay::kEnqueue);
}

// The same of a site that is made for it.
void ExpectSite(const harness& h, const std::vector<uint32_t>& counts,
                const std::function<void(harness*)>& change = nullptr) {
  Site host(h);
  if (change != nullptr) change(host.get());
  GpuSite gpu(host);
  ASSERT_NE(gpu.planner(), nullptr);
  for (uint32_t rows : counts) {
    ExpectRows(gpu, h.x_rows - rows, rows);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_TRUE(gpu.WeightsIntact()) << gpu.name();
}

/* ---- chunks, tiles, shapes ---- */

TEST(PrefillGpu, EveryChunkAndEveryTile) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(256, 128, 24, 4, 64), 1, 1001));
  GpuSite gpu(host);
  for (uint32_t rows : {1u, 2u, 8u, 9u, 16u, 17u, 63u, 64u, 65u, 100u, 256u}) {
    for (const char* tile : kTiles) {
      ExpectRun(gpu, harness_rows(rows, rows), Prefill(tile));
      if (HasFatalFailure()) return;
    }
  }
  ExpectRows(gpu, 1, 1000);
}

// Longer than the rings, with an odd number of blocks of 128 k in up and half a stage of
// scales at the end.
TEST(PrefillGpu, EveryTileOverRingsThatWrap) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(2368, 704, 2, 1, 64), 1, 150));
  GpuSite gpu(host);
  for (uint32_t rows : {75u, 150u}) {
    for (const char* tile : kTiles) {
      ExpectRun(gpu, harness_rows(0, rows), Prefill(tile));
      if (HasFatalFailure()) return;
    }
  }
}

// Units of n256 that keep a part of their totals in registers, in up and down; one more
// than a unit holds.
TEST(PrefillGpu, WidestUnitsOfTwoSegments) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(2112, 2112, 1, 1, 0), 1, 300));
  GpuSite gpu(host);
  for (uint32_t rows : {200u, 230u, 255u, 300u}) {
    for (const char* tile : {"n128", "n256"}) {
      ExpectRun(gpu, harness_rows(0, rows), Prefill(tile));
      if (HasFatalFailure()) FAIL() << rows << " rows";
    }
  }
}

// Wide tiles are done by pairs of blocks where grid and tiles of weights are even: here
// up has an odd number of them but for n256, down an even one.
TEST(PrefillGpu, EveryTileOnFewSms) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(512, 320, 3, 2, 64), 1, 170));
  GpuSite gpu(host);
  for (uint32_t sm_limit : {1u, 2u, 3u, 6u}) {
    for (const char* tile : kTiles) {
      moeplan_options options = Prefill(tile);
      options.sm_limit = sm_limit;
      ExpectRun(gpu, harness_rows(0, 170), options);
      if (HasFatalFailure()) FAIL() << "on " << sm_limit;
    }
  }
}

TEST(PrefillGpu, IsTheRuleFromNineRowsOn) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(256, 128, 24, 4, 64), 1, 20));
  GpuSite gpu(host);
  ExpectRun(gpu, harness_rows(0, 9), Options());
  const moeplan_options rule = Options();
  harness_run run = harness_rows(0, 9);
  run.options = &rule;
  GpuRun once(gpu, run, false);
  struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  ASSERT_MOEPLAN(moeplan_plan_info(once.plan(), &info));
  EXPECT_STREQ(info.recipe_name, "prefill");
}

struct Shape {
  uint32_t hidden, inter, experts, topk, width;
  int spread;
  std::vector<uint32_t> counts;
  const char* name;
};

void PrintTo(const Shape& s, std::ostream* out) { *out << s.name; }

class PrefillGpuShape : public testing::TestWithParam<Shape> {};

TEST_P(PrefillGpuShape, GivesEachRowItsBits) {
  MOEP_NEEDS_GPU();
  const Shape& s = GetParam();
  harness h =
      harness_of(harness_config(s.hidden, s.inter, s.experts, s.topk, s.width),
                 s.hidden + s.inter + s.experts, s.counts.back() + 2);
  h.spread = s.spread;
  if (s.experts > 64) h.distinct_experts = 40;
  ExpectSite(h, s.counts);
}

const Shape kShapes[] = {
    {512, 512, 32, 8, 256, 2, {9, 70}, "Base"},
    {4096, 2048, 6, 3, 64, 2, {12}, "Flash"},
    {6144, 2048, 4, 2, 0, 12, {9}, "WideSpread"},
    {96, 48, 24, 8, 32, 2, {9, 100}, "Small"},
    {208, 464, 20, 5, 112, 2, {33}, "OddWidths"},
    {2064, 2192, 3, 2, 80, 12, {20}, "SpreadOverSegments"},
    {16, 16, 1, 1, 16, 2, {9, 130}, "Least"},
    {1040, 160, 65, 6, 48, 2, {40}, "MoreThan64Experts"},
    {272, 144, 8, 8, 0, 2, {40}, "EveryExpert"},
    {128, 64, 384, 8, 32, 12, {300}, "Experts384"},
    {64, 32, 1024, 8, 16, 2, {300}, "Experts1024"},
    {128, 128, 1024, 32, 0, 2, {100}, "Top32"},
    {64, 256, 40, 17, 16, 2, {65}, "Top17"},
};

INSTANTIATE_TEST_SUITE_P(, PrefillGpuShape, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<Shape>& info) {
                           return std::string(info.param.name);
                         });

// Enough rows for the wide tile of the router, not a multiple of anything.
TEST(PrefillGpu, ManyRowsOfManyExperts) {
  MOEP_NEEDS_SM90();
  constexpr uint32_t kRows = 2085;
  for (uint32_t experts : {17u, 288u, 300u, 700u}) {
    harness h =
        harness_of(harness_config(1040, 16, experts, 2, 16), experts, kRows);
    h.distinct_experts = 8;
    Site host(h);
    GpuSite gpu(host);
    harness_run run = harness_rows(0, kRows);
    run.way = harness_way_tap;
    const Result expected = host.Run(run);
    ASSERT_EQ(expected->status, moeplan_status_success) << host.log();
    ExpectRun(gpu, run, Prefill(), GpuWay::kTap, expected.get());
    run.live_rows = 2060;
    const Result live = host.Run(run);
    ExpectRun(gpu, run, Prefill(), GpuWay::kTap, live.get());
    if (HasFatalFailure()) return;
  }
}

/* ---- routing ---- */

TEST(PrefillGpu, RouterVariants) {
  MOEP_NEEDS_GPU();
  for (uint32_t variant = 0; variant < 16; variant++) {
    moeplan_config config = harness_config(256, 64, 48, 6, 32);
    config.scoring =
        variant & 1 ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
    config.norm_topk_prob = (variant & 2) != 0;
    config.router_bf16_ladder = (variant & 4) != 0;
    harness h = harness_of(config, 20 + variant, 42);
    h.no_bias = (variant & 8) != 0;
    ExpectSite(h, {40});
    if (HasFatalFailure()) FAIL() << "variant " << variant;
  }
}

TEST(PrefillGpu, NullExperts) {
  MOEP_NEEDS_GPU();
  std::vector<uint8_t> some(24, 0), rest(24, 1), all(24, 1);
  for (uint32_t e = 0; e < 24; e += 3) some[e] = 1;
  rest[5] = 0;
  for (const auto* nulls : {&some, &rest, &all}) {
    // With tensor maps in the blob and without.
    for (uint32_t inter : {192u, 208u}) {
      for (uint32_t width : {0u, 48u}) {
        harness h =
            harness_of(harness_config(256, inter, 24, 8, width), 80, 70);
        h.null_experts = nulls->data();
        ExpectSite(h, {9, 66});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Ids from outside: all to one expert, few experts, unfilled ones, repeats, and
// ids that are none.
TEST(PrefillGpu, SkewedRoutingFromOutside) {
  MOEP_NEEDS_SM90();
  constexpr uint32_t kExperts = 30, kTopk = 8, kRows = 150;
  Site host(
      harness_of(harness_config(256, 208, kExperts, kTopk, 32), 100, kRows));
  GpuSite gpu(host);
  std::vector<float> weights(kRows * kTopk);
  for (size_t i = 0; i < weights.size(); i++) {
    weights[i] = 0.25f * static_cast<float>(i % 11) - 1.0f;
  }
  for (int kind = 0; kind < 5; kind++) {
    std::vector<int32_t> ids(kRows * kTopk);
    harness_random random = {static_cast<uint64_t>(kind)};
    for (size_t i = 0; i < ids.size(); i++) {
      const auto any = static_cast<int32_t>(harness_below(&random, kExperts));
      const auto row = i / kTopk;
      ids[i] = kind == 0   ? 29
               : kind == 1 ? static_cast<int32_t>(i % 2)
               : kind == 2 ? -1
               : kind == 3 ? (row % 3 == 0 ? -1 - any : any)
                           : (i % 4 == 0 ? any + 25 : any);
    }
    harness_run run = harness_rows(0, kRows);
    run.way = harness_way_tap;
    run.topk_ids = ids.data();
    run.topk_weights = weights.data();
    const Result expected = host.Run(run);
    ASSERT_EQ(expected->status, moeplan_status_success) << host.log();
    ExpectRun(gpu, run, Prefill(), GpuWay::kTap, expected.get());
    ExpectRun(gpu, run, Prefill("base"), GpuWay::kGraph, expected.get());
    if (kind < 4) {
      ExpectRun(gpu, run, Options().HostDispatch(), GpuWay::kEnqueue,
                expected.get());
    }
    if (HasFatalFailure()) FAIL() << "kind " << kind;
  }
}

/* ---- numbers that are not ---- */

TEST(PrefillGpu, RowsOfNaNInfinityZeroAndSubnormals) {
  MOEP_NEEDS_GPU();
  for (moeplan_scoring scoring :
       {moeplan_scoring_sigmoid, moeplan_scoring_softmax}) {
    for (uint32_t hidden : {256u, 2320u}) {
      moeplan_config config = harness_config(hidden, 96, 20, 5, 48);
      config.scoring = scoring;
      ExpectSite(harness_of(config, 90, 24), {24}, [&](harness* site) {
        const uint16_t first[] = {0x7FC1, 0x7F80, 0xFF80, 0xFFFF, 0x7F7F};
        for (uint32_t r = 0; r < 5; r++) site->x[r * hidden + 3] = first[r];
        for (uint32_t k = 0; k < hidden; k++) {
          site->x[6 * hidden + k] = 0;
          site->x[7 * hidden + k] = 0x8000;
          site->x[8 * hidden + k] =
              static_cast<uint16_t>(0x7F00 | (k % 2) << 15);
          site->x[9 * hidden + k] = 0xFFFF;
          site->x[10 * hidden + k] = static_cast<uint16_t>(k % 128 + 1);
          site->x[11 * hidden + k] = static_cast<uint16_t>(0x80 + k % 64);
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

/* ---- the site's blob ---- */

// The copy engine reads maps from it.
TEST(PrefillGpu, ABlobBetweenTwoMultiplesOf128IsRefused) {
  MOEP_NEEDS_GPU();
  Site host(harness_of(harness_config(128, 64, 12, 4, 0), 7, 20));
  GpuSite gpu(host);
  GpuRun run(gpu, harness_rows(0, 16), false);
  moeplan_binding binding = run.binding();
  binding.site = static_cast<const char*>(binding.site) + 64;
  moeplan_graph_t graph = nullptr;
  EXPECT_EQ(moeplan_graph_create(run.plan(), &binding, &graph),
            moeplan_status_misaligned_pointer);
  EXPECT_EQ(moeplan_enqueue(run.plan(), &binding, gpu.stream()),
            moeplan_status_misaligned_pointer);
  EXPECT_NE(gpu.log().find("must be a multiple of 128 bytes"),
            std::string::npos)
      << gpu.log();
}

/* ---- host dispatch ---- */

class PrefillGpuDispatch : public testing::Test {
 protected:
  static constexpr uint32_t kExperts = 12, kTopk = 4, kRows = 10;

  void SetUp() override { MOEP_NEEDS_GPU(); }

  // Row 7, slot 1 has `id`, every other slot expert 3.
  moeplan_status Enqueue(int32_t id, int32_t live_rows, std::string* log_out) {
    Site host(harness_of(harness_config(128, 64, kExperts, kTopk, 0), 5, 20));
    GpuSite gpu(host);
    std::vector<int32_t> ids(kRows * kTopk, 3);
    const std::vector<float> weights(kRows * kTopk, 0.5f);
    ids[7 * kTopk + 1] = id;
    const moeplan_options options = Options().HostDispatch();
    harness_run run = harness_rows(0, kRows);
    run.options = &options;
    run.live_rows = live_rows;
    run.topk_ids = ids.data();
    run.topk_weights = weights.data();
    const Result result = gpu.Run(run, GpuWay::kEnqueue);
    *log_out = gpu.log();
    return result->status;
  }
};

TEST_F(PrefillGpuDispatch, ReportsAnIdThatIsNoExpert) {
  std::string log;
  EXPECT_EQ(Enqueue(kExperts, -1, &log), moeplan_status_invalid_argument);
  EXPECT_EQ(log,
            "cannot dispatch expert 12 of slot 29: the site has 12 experts\n");
  EXPECT_EQ(Enqueue(kExperts - 1, -1, &log), moeplan_status_success) << log;
  EXPECT_EQ(Enqueue(-1, -1, &log), moeplan_status_success) << log;
  // Of a row that is not alive nothing is read.
  EXPECT_EQ(Enqueue(kExperts, 7, &log), moeplan_status_success) << log;
  EXPECT_EQ(Enqueue(kExperts, 8, &log), moeplan_status_invalid_argument);
}

TEST_F(PrefillGpuDispatch, IsRefusedInACapture) {
  Site host(harness_of(harness_config(128, 64, kExperts, kTopk, 0), 6, 20));
  GpuSite gpu(host);
  const moeplan_options options = Options().HostDispatch();
  harness_run run = harness_rows(0, kRows);
  run.options = &options;
  GpuRun once(gpu, run, false);
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(
      cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(moeplan_enqueue(once.plan(), &once.binding(), gpu.stream()),
            moeplan_status_invalid_state);
  ASSERT_CUDA(cudaStreamEndCapture(gpu.stream(), &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  EXPECT_EQ(gpu.log(),
            "cannot enqueue a plan with host_dispatch into a capture: it reads "
            "ids back\n");
  moeplan_graph_t own = nullptr;
  EXPECT_EQ(moeplan_graph_create(once.plan(), &once.binding(), &own),
            moeplan_status_invalid_state);
}

}  // namespace
