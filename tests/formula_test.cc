// Whole sites against the formula of moeplan.h in double precision, within what
// the contract's five roundings may cost.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/harness_cc.h"
#include "tests/reference.h"

namespace {

using moeplan_test::Bf16Values;
using moeplan_test::MaxRelative;
using moeplan_test::Options;
using moeplan_test::Reference;
using moeplan_test::RelativeL2;
using moeplan_test::Result;
using moeplan_test::Site;
using moeplan_test::Vector;

constexpr double kBar = 0.0040;

Vector Input(Site& site, uint32_t row) {
  const size_t hidden = site.get()->config.hidden_size;
  return Bf16Values(site.get()->x + row * hidden, hidden);
}

Vector Output(Site& site, const Result& result, uint32_t row) {
  const size_t hidden = site.get()->config.hidden_size;
  return Bf16Values(reinterpret_cast<const uint16_t*>(result->y) + row * hidden,
                    hidden);
}

void Append(Vector* all, const Vector& part) {
  all->insert(all->end(), part.begin(), part.end());
}

// The plan's ids hold the largest keys, up to what float32 may confuse.
void ExpectTopk(const Reference& reference, const Vector& x, const int32_t* ids,
                uint32_t topk) {
  const Vector keys = reference.Keys(x);
  std::vector<bool> taken(keys.size(), false);
  double least = HUGE_VAL, largest = 0.0;
  for (uint32_t j = 0; j < topk; j++) {
    taken[static_cast<size_t>(ids[j])] = true;
    least = std::min(least, keys[static_cast<size_t>(ids[j])]);
  }
  for (double key : keys) largest = std::max(largest, std::fabs(key));
  for (size_t e = 0; e < keys.size(); e++) {
    if (taken[e]) continue;
    ASSERT_LE(keys[e], least + 1e-6 * largest) << "expert " << e;
  }
}

// One plan over all rows of x: routing near the formula's, y within the bar.
double SiteError(Site& site, const moeplan_options& options) {
  const harness* h = site.get();
  harness_run run = harness_rows(0, h->x_rows);
  run.options = &options;
  const Result result = site.Run(run);
  EXPECT_EQ(result->status, moeplan_status_success) << site.log();
  if (result->status != moeplan_status_success) return HUGE_VAL;
  const Reference reference(h->config, h->site);
  const uint32_t topk = h->config.num_experts_per_tok;
  Vector got, exact;
  for (uint32_t r = 0; r < h->x_rows; r++) {
    const Vector x = Input(site, r);
    Append(&got, Output(site, result, r));
    if (h->config.kind == moeplan_site_dense) {
      Append(&exact, reference.Dense(x));
      continue;
    }
    const int32_t* ids = result->ids + r * topk;
    ExpectTopk(reference, x, ids, topk);
    const Vector weights = reference.Weights(x, ids);
    for (uint32_t j = 0; j < topk; j++) {
      EXPECT_NEAR(static_cast<double>(result->weights[r * topk + j]),
                  weights[j], 1e-5 * std::fabs(weights[j]));
    }
    Append(&exact, reference.Y(x, ids));
  }
  return RelativeL2(got, exact);
}

struct Shape {
  uint32_t hidden, inter, experts, topk, width;
};

harness Random(const Shape& s, uint64_t seed, uint32_t rows) {
  return harness_of(
      harness_config(s.hidden, s.inter, s.experts, s.topk, s.width), seed,
      rows);
}

TEST(Formula, WholeSitesInEveryRecipe) {
  uint64_t seed = 1;
  for (const Shape& shape :
       {Shape{128, 64, 16, 4, 64}, Shape{512, 256, 32, 8, 256}}) {
    Site site(Random(shape, ++seed, 8));
    for (moeplan_recipe recipe :
         {moeplan_recipe_verify, moeplan_recipe_prefill, moeplan_recipe_per_row,
          moeplan_recipe_row_groups}) {
      EXPECT_LE(SiteError(site, Options().Recipe(recipe)), kBar)
          << "recipe " << recipe << ", hidden " << shape.hidden;
    }
  }
}

// Every output passes all five roundings here: the five alone give 0.0037 (and
// up to 0.0041 over 8 rows only, so there are 32).
TEST(Formula, WithoutSharedExpert) {
  Site site(Random({256, 96, 65, 6, 0}, 5, 32));
  EXPECT_LE(SiteError(site, Options()), kBar);
  EXPECT_LE(SiteError(site, Options().NoGrouped()), kBar);
}

TEST(Formula, RouterVariants) {
  for (int variant = 0; variant < 8; variant++) {
    moeplan_config config = harness_config(128, 64, 24, 8, 64);
    config.scoring =
        variant & 1 ? moeplan_scoring_softmax : moeplan_scoring_sigmoid;
    config.norm_topk_prob = (variant & 2) != 0;
    config.routed_scaling_factor = variant & 4 ? 2.5f : 1.0f;
    harness h = harness_of(config, 10 + static_cast<uint64_t>(variant), 12);
    h.no_bias = variant % 3 == 0;
    Site site(h);
    EXPECT_LE(SiteError(site, Options()), kBar) << "variant " << variant;
  }
}

TEST(Formula, LimitsOfSwiglu) {
  for (float limit : {0.25f, 2.0f, 10.0f, MOEPLAN_NO_SWIGLU_LIMIT}) {
    moeplan_config config = harness_config(128, 64, 16, 4, 64);
    config.swiglu_limit = limit;
    Site site(harness_of(config, 20, 12));
    EXPECT_LE(SiteError(site, Options()), kBar) << "limit " << limit;
    moeplan_config dense = harness_dense_config(128, 192);
    dense.swiglu_limit = limit;
    Site ffn(harness_of(dense, 21, 12));
    EXPECT_LE(SiteError(ffn, Options()), kBar) << "dense, limit " << limit;
  }
}

// All rows by every recipe: the same bits, within the bar of the formula.
void ExpectRecipesAgree(Site& site) {
  const uint32_t rows = site.get()->x_rows;
  EXPECT_LE(SiteError(site, Options()), kBar) << site.log();
  Result results[3];
  const moeplan_recipe recipes[] = {moeplan_recipe_prefill,
                                    moeplan_recipe_row_groups,
                                    moeplan_recipe_per_row};
  for (int i = 0; i < 3; i++) {
    const moeplan_options options = Options().Recipe(recipes[i]);
    harness_run run = harness_rows(0, rows);
    run.options = &options;
    results[i] = site.Run(run);
    ASSERT_EQ(results[i]->status, moeplan_status_success) << site.log();
    for (uint32_t r = 0; r < rows; r++) {
      EXPECT_EQ(harness_row_difference(site.get(), results[0].get(), r,
                                       results[i].get(), r),
                nullptr)
          << "row " << r << ", recipe " << recipes[i];
    }
  }
}

constexpr uint32_t kWidths[] = {96, 160, 208, 464, 640, 704, 1408, 2880};

TEST(Formula, EveryWidthOfHidden) {
  for (uint32_t hidden : kWidths) {
    SCOPED_TRACE(hidden);
    Site site(Random({hidden, 48, 8, 2, 32}, hidden, 9));
    ExpectRecipesAgree(site);
  }
}

TEST(Formula, EveryWidthOfIntermediate) {
  for (uint32_t inter : kWidths) {
    SCOPED_TRACE(inter);
    Site site(Random({64, inter, 6, 2, inter}, inter, 9));
    ExpectRecipesAgree(site);
    Site dense(harness_of(harness_dense_config(64, inter), inter, 9));
    EXPECT_LE(SiteError(dense, Options()), kBar);
  }
}

// gate and up of one expert carry different weight_scale_2, and so does down.
TEST(Formula, ThreeScalesPerExpert) {
  Site site(Random({128, 64, 8, 2, 0}, 30, 6));
  auto* h = site.get();
  for (uint32_t e = 0; e < 8; e++) {
    const_cast<float*>(h->site.gate.weight_scale_2)[e] *= 0.125f;
    const_cast<float*>(h->site.down.weight_scale_2)[e] *= 3.0f;
  }
  ASSERT_EQ(harness_write_site(h), moeplan_status_success);
  EXPECT_LE(SiteError(site, Options()), kBar);
}

// The twelve lowest scale codes: zero, the seven subnormals, the first normals.
TEST(Formula, SubnormalBlockScales) {
  Site site(Random({128, 64, 8, 2, 0}, 31, 32));
  auto* h = site.get();
  harness_random random = {32};
  for (auto* p : {&h->site.gate, &h->site.up, &h->site.down}) {
    for (uint32_t e = 0; e < 8; e++) {
      auto* scale =
          static_cast<uint8_t*>(const_cast<void*>(p->weight_scale[e]));
      for (uint32_t i = 0; i < 128 * 64 / 16; i++) {
        scale[i] = static_cast<uint8_t>(harness_below(&random, 12));
      }
      const_cast<float*>(p->weight_scale_2)[e] = 3.0f;
    }
  }
  ASSERT_EQ(harness_write_site(h), moeplan_status_success);
  EXPECT_LE(SiteError(site, Options()), kBar);
}

// M = 64, top 8 of 16, N = 256, K = 512: outputs above 2^-8 of the largest. gate
// and up have N = I, K = H.
TEST(Formula, RoutedProjectionsHaveMaxRelativeError) {
  Site site(Random({512, 256, 16, 8, 0}, 40, 64));
  const harness* h = site.get();
  const Reference reference(h->config, h->site);
  const Result result = site.Run(harness_rows(0, 64));
  ASSERT_EQ(result->status, moeplan_status_success) << site.log();
  Vector exact, got;
  for (uint32_t slot = 0; slot < 64 * 8; slot++) {
    const Vector x = Input(site, slot / 8);
    const int32_t e = result->ids[slot];
    const float* tap = result->tap.expert_up + slot * 512;
    for (const auto* projection : {&h->site.gate, &h->site.up}) {
      Append(&exact, reference.Project(*projection, e, 256, x));
      // The epilogue in float32, then bf16 by nearest even, by double.
      for (uint32_t n = 0; n < 256; n++) {
        const float value = tap[n] * (projection->weight_scale_2[e] * 0x1p26f);
        int exponent = 0;
        std::frexp(value, &exponent);
        const double unit = std::ldexp(1.0, exponent - 8);
        got.push_back(std::nearbyint(static_cast<double>(value) / unit) * unit);
      }
      tap += 256;
    }
  }
  EXPECT_LE(MaxRelative(got, exact), kBar);
}

// The same of down, N = H = 256, K = I = 512: y of one expert of weight 1 is its
// down output, from h as the plan rounds it. The error of h comes on top, so
// only the sum is held to the bar.
TEST(Formula, DownProjectionsByOneExpert) {
  moeplan_config config = harness_config(256, 512, 16, 1, 0);
  Site site(harness_of(config, 41, 64));
  const harness* h = site.get();
  const Reference reference(h->config, h->site);
  std::vector<int32_t> ids(64);
  const std::vector<float> ones(64, 1.0f);
  for (int32_t r = 0; r < 64; r++) ids[static_cast<size_t>(r)] = r % 16;
  harness_run run = harness_rows(0, 64);
  run.topk_ids = ids.data();
  run.topk_weights = ones.data();
  const Result result = site.Run(run);
  ASSERT_EQ(result->status, moeplan_status_success) << site.log();
  Vector got, exact;
  for (uint32_t r = 0; r < 64; r++) {
    Append(&got, Output(site, result, r));
    Append(&exact, reference.Y(Input(site, r), &ids[r], Vector(1, 1.0)));
  }
  EXPECT_LE(RelativeL2(got, exact), kBar);
}

// Experts split over ranks by turns, the shared expert by columns of its width.
TEST(Formula, SumsOfRanksAreTheWhole) {
  const uint32_t rows = 10, hidden = 96, width = 128;
  Site whole(Random({hidden, 48, 24, 8, width}, 6, rows));
  const moeplan_options options = Options().Float32();
  harness_run run = harness_rows(0, rows);
  run.options = &options;
  const Result y = whole.Run(run);
  ASSERT_EQ(y->status, moeplan_status_success) << whole.log();
  const auto* total = reinterpret_cast<const float*>(y->y);
  const harness* all = whole.get();
  for (uint32_t ranks : {2u, 4u, 8u}) {
    for (bool split_shared : {false, true}) {
      std::vector<double> sum(rows * hidden, 0.0), size(rows * hidden, 0.0);
      for (uint32_t rank = 0; rank < ranks; rank++) {
        std::vector<uint8_t> nulls(24);
        for (uint32_t e = 0; e < 24; e++) nulls[e] = e % ranks != rank;
        const uint32_t own =
            split_shared ? width / ranks : (rank == 0 ? width : 0);
        harness h = Random({hidden, 48, 24, 8, own}, 6, rows);
        h.null_experts = nulls.data();
        Site part(h);
        harness* p = part.get();
        const size_t first = split_shared ? rank * own : 0;
        const auto* shared = &all->site.shared;
        std::copy_n(all->x, rows * hidden, p->x);
        p->site = all->site;
        p->site.shared = moeplan_ffn{};
        if (own != 0) {
          p->site.shared = {
              static_cast<const uint16_t*>(shared->gate) + first * hidden,
              static_cast<const uint16_t*>(shared->up) + first * hidden,
              static_cast<const uint16_t*>(shared->down) + first, width};
        }
        std::vector<const void*> kept[3];
        int i = 0;
        for (auto member :
             {&moeplan_site::gate, &moeplan_site::up, &moeplan_site::down}) {
          const void* const* weight = (all->site.*member).weight;
          kept[i].assign(weight, weight + 24);
          for (size_t e = 0; e < 24; e++) {
            if (nulls[e] != 0) kept[i][e] = nullptr;
          }
          (p->site.*member).weight = kept[i++].data();
        }
        ASSERT_EQ(harness_write_site(p), moeplan_status_success) << part.log();
        const Result mine = part.Run(run);
        ASSERT_EQ(mine->status, moeplan_status_success) << part.log();
        const auto* partial = reinterpret_cast<const float*>(mine->y);
        ASSERT_EQ(std::memcmp(mine->ids, y->ids, rows * 8 * 4), 0);
        for (size_t n = 0; n < sum.size(); n++) {
          const double value = static_cast<double>(partial[n]);
          sum[n] += value;
          size[n] += std::fabs(value);
        }
      }
      const double largest = *std::max_element(size.begin(), size.end());
      for (size_t n = 0; n < sum.size(); n++) {
        ASSERT_NEAR(sum[n], static_cast<double>(total[n]), 0x1p-20 * largest)
            << ranks << " ranks, output " << n;
      }
    }
  }
}

}  // namespace
