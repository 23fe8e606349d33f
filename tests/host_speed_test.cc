// The host device is the oracle of every GPU test and what runs where there is
// no GPU: it may not be a toy in speed.

#include <gtest/gtest.h>

#include <chrono>

#include "tests/harness_cc.h"

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kLimitSeconds = 60.0;
#else
constexpr double kLimitSeconds = 1.0;
#endif

// GLM-5.3-Flash's routed site: 8 of 288 experts and the shared one.
TEST(HostSpeed, OneRowOfAWholeSiteTakesLessThanASecond) {
  harness h = harness_of(harness_config(4096, 2048, 288, 8, 2048), 1, 1);
  h.distinct_experts = 8;
  moeplan_test::Site site(h);
  harness_run run = harness_rows(0, 1);
  run.way = harness_way_enqueue;
  // The best of a few: other work on the machine is not the library's.
  double best = kLimitSeconds;
  for (int run_index = 0; run_index < 8 && best >= kLimitSeconds; run_index++) {
    const auto begin = std::chrono::steady_clock::now();
    const moeplan_test::Result result = site.Run(run);
    const std::chrono::duration<double> spent =
        std::chrono::steady_clock::now() - begin;
    ASSERT_EQ(result->status, moeplan_status_success);
    std::printf("1 row: %.3f s\n", spent.count());
    best = std::min(best, spent.count());
  }
  EXPECT_LT(best, kLimitSeconds);
}

}  // namespace
