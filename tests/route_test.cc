// The route kernel of the host device: selection against a plain sort, weights
// against the contract's operations written out here.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/harness.h"

extern "C" {
#include "kernels/kernels.h"
#include "kernels/scalar.h"
}

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

uint32_t Bits(float value) { return moep_float_bits(value); }

float Ladder(float value) {
  // bf16, nearest even: add and subtract what pushes 16 bits out.
  if (!std::isfinite(value) || value == 0.0f) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 8, -133));
  return static_cast<float>(std::nearbyint(static_cast<double>(value) / unit) *
                            unit);
}

// One route call over rows of logits.
struct Router {
  uint32_t experts, topk;
  moep_scoring scoring = moep_scoring_sigmoid;
  bool norm = true, ladder = false;
  float scale = 1.0f;
  std::vector<float> bias = {};

  std::vector<int32_t> ids = {}, ring_ids = {};
  std::vector<float> weights = {}, ring_weights = {};
  uint64_t cursor = 0;
  uint32_t capacity = 0;  // of the ring; 0: none
  const int32_t* external_ids = nullptr;
  const float* external_weights = nullptr;
  const int32_t* live_rows = nullptr;

  void Run(std::vector<float> logits, uint32_t rows, uint32_t begin = 0,
           uint32_t count = 0) {
    alignas(8) unsigned char memory[sizeof(moep_site_table)] = {};
    auto* site = reinterpret_cast<moep_site_table*>(memory);
    site->bias = bias.empty() ? nullptr : bias.data();
    ids.resize(rows * topk, 0x5A5A5A5A);
    weights.resize(rows * topk, -1.0f);
    ring_ids.resize(capacity * topk, 0x5A5A5A5A);
    ring_weights.resize(capacity * topk, -1.0f);
    union moep_args args = {};
    moep_route_args& route = args.route;
    route.rows = {begin, count == 0 ? rows : count, rows, live_rows};
    route.rule = {experts, topk,   static_cast<uint32_t>(scoring),
                  norm,    ladder, scale};
    route.site = site;
    route.logits = logits.data();
    route.external_ids = external_ids;
    route.external_weights = external_weights;
    route.ids = ids.data();
    route.weights = weights.data();
    if (capacity != 0) {
      route.trace = {ring_ids.data(), ring_weights.data(), &cursor, capacity};
    }
    const moep_launch launch = {{1, 1}, 0, 0, 0};
    ASSERT_EQ(moep_route_f32_host(&args, &launch, nullptr), cudaSuccess);
  }

  // s[e] of one row, by the contract's words.
  std::vector<float> Scores(const float* logits) const {
    std::vector<float> s(experts);
    if (scoring == moep_scoring_sigmoid) {
      for (uint32_t e = 0; e < experts; e++) {
        s[e] = 1.0f / (1.0f + moep_exp(-logits[e]));
      }
    } else {
      const float maximum = *std::max_element(logits, logits + experts);
      float sum = 0.0f;
      for (uint32_t e = 0; e < experts; e++) {
        s[e] = moep_exp(logits[e] - maximum);
        sum += s[e];
      }
      for (float& score : s) score = score / sum;
    }
    if (!ladder) return s;
    for (float& score : s) score = Ladder(score);
    return s;
  }

  // Expected ids of one row with this bias: a stable sort by descending key.
  std::vector<int32_t> Picks(const float* logits,
                             const std::vector<float>& with_bias) const {
    std::vector<float> keys = Scores(logits);
    for (uint32_t e = 0; e < experts; e++) {
      keys[e] = keys[e] + (with_bias.empty() ? 0.0f : with_bias[e]);
      if (ladder) keys[e] = Ladder(keys[e]);
      if (std::isnan(keys[e])) keys[e] = -kInf;
    }
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
    });
    order.resize(topk);
    return order;
  }

  // Runs and compares ids and the bits of weights with the contract's words.
  void ExpectRows(const std::vector<float>& logits) {
    const auto rows = static_cast<uint32_t>(logits.size() / experts);
    Run(logits, rows);
    for (uint32_t r = 0; r < rows; r++) {
      const float* row = logits.data() + r * experts;
      const std::vector<int32_t> picks = Picks(row, bias);
      const std::vector<float> s = Scores(row);
      float sum = 0.0f;
      for (int32_t e : picks) {
        sum = sum + s[static_cast<size_t>(e)];
        if (ladder) sum = Ladder(sum);
      }
      for (uint32_t j = 0; j < topk; j++) {
        ASSERT_EQ(ids[r * topk + j], picks[j])
            << experts << " experts, top " << topk << ", row " << r << "," << j;
        float w = s[static_cast<size_t>(picks[j])];
        if (norm) w = w / (sum + 1e-20f);
        if (norm && ladder) w = Ladder(w);
        w = w * scale;
        if (ladder) w = Ladder(w);
        ASSERT_EQ(Bits(weights[r * topk + j]), Bits(w)) << "row " << r;
      }
    }
  }
};

std::vector<float> RandomLogits(uint64_t seed, size_t count, float spread) {
  harness_random random = {seed};
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = (static_cast<float>(harness_below(&random, 65536)) / 32768.0f - 1) *
            spread;
  }
  return logits;
}

// GLM-class: near `middle`, spread 0.04, float32.
std::vector<float> RandomBias(uint64_t seed, uint32_t experts, float middle) {
  std::vector<float> bias = RandomLogits(seed, experts, 0.02f);
  for (float& b : bias) b += middle;
  return bias;
}

constexpr uint32_t kExperts[] = {1,   7,   8,   63,  64,  65,
                                 255, 256, 257, 288, 384, 1024};

TEST(Route, EveryTopkAtEveryNumberOfExperts) {
  for (uint32_t experts : kExperts) {
    for (uint32_t topk = 1; topk <= std::min(experts, 32u); topk++) {
      Router router = {experts, topk};
      router.scoring =
          topk % 3 == 0 ? moep_scoring_softmax : moep_scoring_sigmoid;
      router.norm = topk % 2 == 0;
      router.ladder = topk % 5 == 0;
      router.scale = 2.5f;
      if (topk % 4 != 0) router.bias = RandomBias(experts, experts, 0.1f);
      router.ExpectRows(RandomLogits(experts + topk, 3 * experts, 4.0f));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Route, TiesGoToTheLowerId) {
  harness_random random = {1};
  for (uint32_t experts : {8u, 64u, 257u}) {
    for (int i = 0; i < 50; i++) {
      // Three values only: the edge of the top-k is nearly always a tie.
      std::vector<float> logits(experts);
      for (float& l : logits) {
        l = static_cast<float>(harness_below(&random, 3));
      }
      Router{experts, 8}.ExpectRows(logits);
    }
    Router all_equal = {experts, 8};
    all_equal.ExpectRows(std::vector<float>(experts, 0.25f));
    for (int32_t j = 0; j < 8; j++) {
      EXPECT_EQ(all_equal.ids[static_cast<size_t>(j)], j);
    }
  }
}

TEST(Route, NanRanksAsMinusInfinity) {
  for (moep_scoring scoring : {moep_scoring_sigmoid, moep_scoring_softmax}) {
    Router router = {8, 8, scoring};
    const bool sigmoid = scoring == moep_scoring_sigmoid;
    // As a bias: NaN and -infinity tie, the lower id first.
    router.bias = {kNan, 1.0f, -kInf, 2.0f, kNan, -1e30f, kInf, 0.0f};
    router.Run(std::vector<float>(8, 0.5f), 1);
    EXPECT_EQ(router.ids, (std::vector<int32_t>{6, 3, 1, 7, 5, 0, 2, 4}));
    // As a logit: last, and of a softmax row every score is NaN.
    router.bias.clear();
    router.Run({1.0f, kNan, 0.0f, kNan, 3.0f, -kInf, 2.0f, kInf}, 1);
    EXPECT_EQ(router.ids,
              (sigmoid ? std::vector<int32_t>{7, 4, 6, 0, 2, 5, 1, 3}
                       : std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    router.Run(std::vector<float>(8, kNan), 1);
    EXPECT_EQ(router.ids, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    for (float w : router.weights) EXPECT_EQ(Bits(w), 0x7FFFFFFFu);
  }
}

TEST(Route, ZerosOfBothSignsTie) {
  Router router = {6, 6};
  router.bias = {-0.0f, 0.0f, -0.0f, 0.0f, 1.0f, -1.0f};
  router.ExpectRows(std::vector<float>(6, -200.0f));  // s = 0
  EXPECT_EQ(router.ids, (std::vector<int32_t>{4, 0, 1, 2, 3, 5}));
}

TEST(Route, BiasIsFloat32ToTheComparison) {
  for (float middle : {7.0f, 20.0f, 35.0f}) {
    Router router = {288, 8};
    router.bias = RandomBias(2, 288, middle);
    const std::vector<float> logits = RandomLogits(3, 64 * 288, 0.2f);
    router.ExpectRows(logits);
    // A bias in bf16 would pick others in nearly every row: this test sees it.
    std::vector<float> narrow = router.bias;
    for (float& b : narrow) b = Ladder(b);
    int others = 0;
    for (uint32_t r = 0; r < 64; r++) {
      const float* row = logits.data() + r * 288;
      others += router.Picks(row, narrow) != router.Picks(row, router.bias);
    }
    EXPECT_GE(others, 60) << "biases near " << middle;
  }
}

TEST(Route, WeightComesFromTheScoreNotFromScorePlusBias) {
  Router router = {64, 8};
  router.norm = false;
  router.bias = RandomBias(4, 64, 35.0f);
  const std::vector<float> logits = RandomLogits(5, 64, 3.0f);
  router.ExpectRows(logits);
  int different = 0;
  for (uint32_t j = 0; j < 8; j++) {
    const auto e = static_cast<size_t>(router.ids[j]);
    const float s = 1.0f / (1.0f + moep_exp(-logits[e]));
    EXPECT_EQ(Bits(router.weights[j]), Bits(s));
    different += (s + router.bias[e]) - router.bias[e] != s;
  }
  EXPECT_GE(different, 6);
}

TEST(Route, UnderflownScoresGiveWeightZero) {
  Router router = {16, 4};
  router.scale = 2.5f;
  router.bias = RandomBias(6, 16, 7.0f);
  for (float logit : {-200.0f, -1e30f, -kInf}) {
    router.ExpectRows(std::vector<float>(16, logit));
    for (float w : router.weights) EXPECT_EQ(Bits(w), 0u);
  }
}

TEST(Route, NormAndScaleAreIndependent) {
  const std::vector<float> logits = RandomLogits(7, 32, 2.0f);
  for (bool norm : {false, true}) {
    for (float scale : {1.0f, 2.5f, 0.0f, -3.0f}) {
      Router router = {32, 8};
      router.norm = norm;
      router.scale = scale;
      router.ExpectRows(logits);
      // In double, the sum over the row shows both flags.
      double sum = 0.0, scores = 0.0;
      for (uint32_t j = 0; j < 8; j++) {
        const double l = logits[static_cast<size_t>(router.ids[j])];
        sum += static_cast<double>(router.weights[j]);
        scores += 1.0 / (1.0 + std::exp(-l));
      }
      const double one = static_cast<double>(scale) * (norm ? 1.0 : scores);
      EXPECT_NEAR(sum, one, 1e-5);
    }
  }
}

// Each rounding point changes a bit somewhere in these rows.
TEST(Route, LadderRoundsEveryScalar) {
  for (moep_scoring scoring : {moep_scoring_sigmoid, moep_scoring_softmax}) {
    for (bool norm : {false, true}) {
      Router router = {40, 8, scoring, norm, true, 2.5f};
      router.bias = RandomBias(8, 40, 0.4f);
      router.ExpectRows(RandomLogits(9, 200 * 40, 3.0f));
      for (float w : router.weights) EXPECT_EQ(Bits(w) & 0xFFFF, 0u);
    }
  }
}

TEST(Route, ExternalIdsAreCopied) {
  const int32_t ids[] = {3, 3, -1, 8, 0, 7, INT32_MAX, INT32_MIN};
  const float weights[] = {0.5f, -2.0f, kNan, kNan, 1e30f, 0.0f, 1.0f, kInf};
  Router router = {8, 4};
  router.scale = 2.5f;  // not theirs
  router.external_ids = ids;
  router.external_weights = weights;
  router.Run({}, 2);
  EXPECT_EQ(router.ids, (std::vector<int32_t>{3, 3, -1, -1, 0, 7, -1, -1}));
  EXPECT_EQ(router.weights, (std::vector<float>{0.5f, -2.0f, 0.0f, 0.0f, 1e30f,
                                                0.0f, 0.0f, 0.0f}));
}

TEST(Route, DeadRowsAreUnfilled) {
  const std::vector<float> logits = RandomLogits(10, 6 * 16, 2.0f);
  for (int32_t live : {-7, 0, 2, 6, 100}) {
    Router router = {16, 4};
    router.live_rows = &live;
    router.capacity = 6;
    router.Run(logits, 6);
    for (uint32_t slot = 0; slot < 24; slot++) {
      const bool alive = static_cast<int32_t>(slot / 4) < live;
      EXPECT_EQ(router.ids[slot] >= 0, alive);
      EXPECT_EQ(router.weights[slot] > 0.0f, alive);
      EXPECT_EQ(router.ring_ids[slot] != 0x5A5A5A5A, alive);
    }
  }
}

// The kernel writes at cursor % capacity and leaves the cursor to the caller.
TEST(Route, TraceRingWraps) {
  const std::vector<float> logits = RandomLogits(11, 3 * 16, 2.0f);
  Router router = {16, 4};
  router.capacity = 5;
  for (uint64_t cursor : {0ull, 3ull, 4ull, 9ull, 0xFFFFFFFFFull}) {
    router.cursor = cursor;
    router.ring_ids.assign(20, 0x5A5A5A5A);
    router.Run(logits, 3);
    EXPECT_EQ(router.cursor, cursor);
    for (uint64_t r = 0; r < 5; r++) {
      const int32_t* ring = router.ring_ids.data() + (cursor + r) % 5 * 4;
      if (r >= 3) {
        EXPECT_EQ(ring[0], 0x5A5A5A5A);
        continue;
      }
      EXPECT_EQ(std::memcmp(ring, router.ids.data() + r * 4, 16), 0);
      EXPECT_EQ(std::memcmp(router.ring_weights.data() + (cursor + r) % 5 * 4,
                            router.weights.data() + r * 4, 16),
                0);
    }
  }
}

}  // namespace
