// The parallel loop of the host device: every item once, few threads, and a
// floating-point mode of its own.

#include <fenv.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/harness_cc.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern "C" {
#include "kernels/host/parallel.h"
}

namespace {

using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

constexpr uint64_t kMuchWork = uint64_t{1} << 40;  // steps; enough to share

// Counts items and threads, and what mode each item ran in.
struct Counter {
  explicit Counter(uint32_t items) : runs(items) {}
  mutable std::vector<std::atomic<uint32_t>> runs;
  mutable std::mutex mutex;
  mutable std::set<std::thread::id> threads;
  mutable std::set<int> rounding;
  mutable std::set<unsigned> control;
  mutable std::set<float> sums;

  static void Work(const void* context, uint32_t item) {
    const auto* self = static_cast<const Counter*>(context);
    self->runs[item]++;
    volatile float tiny = 0x1p-149f, one = 1.0f, least = 0x1p-126f;
    const std::lock_guard<std::mutex> lock(self->mutex);
    self->threads.insert(std::this_thread::get_id());
    self->rounding.insert(fegetround());
    self->sums.insert({tiny + tiny, one + tiny, least * 0.5f, one / 3.0f});
#if defined(__x86_64__)
    self->control.insert(_mm_getcsr() & 0xFFC0);
#endif
  }

  void Run(uint64_t steps, uint32_t count) {
    moep_parallel(static_cast<uint32_t>(runs.size()), steps, count, Work, this);
    for (size_t i = 0; i < runs.size(); i++) ASSERT_EQ(runs[i], 1u) << i;
  }
};

TEST(Parallel, EveryItemRunsOnce) {
  for (uint32_t items : {0u, 1u, 2u, 3u, 63u, 64u, 65u, 1000u}) {
    for (uint32_t threads : {0u, 1u, 2u, 3u, 64u, 1000u}) {
      for (uint64_t steps : {uint64_t{0}, uint64_t{20000}, kMuchWork}) {
        Counter counter(items);
        counter.Run(steps, threads);
        const size_t most = threads == 0 ? 64 : std::min(threads, 64u);
        EXPECT_LE(counter.threads.size(), most);
        EXPECT_LE(counter.threads.size(), items);
      }
    }
  }
}

TEST(Parallel, LittleWorkAndOneThreadStayOnTheCaller) {
  const std::set<std::thread::id> caller = {std::this_thread::get_id()};
  Counter little(100), one(100), single(1);
  little.Run(0, 64);
  one.Run(kMuchWork, 1);
  single.Run(kMuchWork, 64);
  EXPECT_EQ(little.threads, caller);
  EXPECT_EQ(one.threads, caller);
  EXPECT_EQ(single.threads, caller);
}

// Two items that wait for each other: only two threads get through.
TEST(Parallel, ThreadsRunAtTheSameTime) {
  std::atomic<int> arrived{0};
  moep_parallel(
      2, kMuchWork, 2,
      [](const void* context, uint32_t) {
        auto* count =
            static_cast<std::atomic<int>*>(const_cast<void*>(context));
        (*count)++;
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (*count < 2 && std::chrono::steady_clock::now() < end) {
          std::this_thread::yield();
        }
      },
      &arrived);
  EXPECT_EQ(arrived, 2);
}

// ---- floating-point mode ---------------------------------------------------------

// Sets a mode for its lifetime.
class Mode {
 public:
  Mode(int rounding, unsigned bits) {
    fegetenv(&saved_);
    fesetround(rounding);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | bits);
#else
    (void)bits;
#endif
  }
  ~Mode() { fesetenv(&saved_); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  fenv_t saved_;
};

constexpr int kRoundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
                              FE_TOWARDZERO};
constexpr unsigned kFlush = 0x8040;  // flush-to-zero, denormals-are-zero

unsigned Control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

TEST(Parallel, TheCallersModeIsIgnoredInsideAndRestored) {
  Counter plain(50);
  plain.Run(kMuchWork, 4);
  for (int rounding : kRoundings) {
    for (unsigned bits : {0u, 0x8000u, 0x0040u, kFlush}) {
      for (uint32_t threads : {1u, 4u}) {
        Counter counter(50);
        unsigned before = 0, after = 0;
        int round_after = 0, x87_after = 0, x87_before = 0;
        {
          const Mode mode(rounding, bits);
          before = Control();
          x87_before = fetestexcept(FE_ALL_EXCEPT);
          counter.Run(kMuchWork, threads);
          after = Control();
          x87_after = fetestexcept(FE_ALL_EXCEPT);
          round_after = fegetround();
        }
        EXPECT_EQ(counter.rounding, std::set<int>{FE_TONEAREST});
        EXPECT_EQ(counter.sums, plain.sums);
        EXPECT_EQ(counter.control, plain.control);
        EXPECT_EQ(after, before) << "mode or flags of the caller changed";
        EXPECT_EQ(x87_after, x87_before);
        EXPECT_EQ(round_after, rounding);
      }
    }
  }
}

// Operands over 2^+-12 so that totals are far from round numbers, and a row of
// subnormals: each plan gives the bits of an ordinary run.
TEST(Parallel, SitesGiveTheSameBitsInEveryMode) {
  harness h = harness_of(harness_config(528, 160, 16, 8, 64), 1, 12);
  h.spread = 12;
  Site site(h);
  for (size_t i = 0; i < 528; i++) site.get()->x[3 * 528 + i] &= 0x807F;
  for (moeplan_recipe recipe :
       {moeplan_recipe_row_groups, moeplan_recipe_prefill}) {
    for (harness_way way : {harness_way_tap, harness_way_graph}) {
      const moeplan_options options = Options().Recipe(recipe);
      harness_run run = harness_rows(0, 12);
      run.options = &options;
      run.way = way;
      const Result plain = site.Run(run);
      ASSERT_EQ(plain->status, moeplan_status_success) << site.log();
      for (int rounding : kRoundings) {
        Result result;
        {
          const Mode mode(rounding, kFlush);
          result = site.Run(run);
        }
        ASSERT_EQ(result->status, moeplan_status_success);
        for (uint32_t r = 0; r < 12; r++) {
          const char* difference = harness_row_difference(
              site.get(), plain.get(), r, result.get(), r);
          ASSERT_EQ(difference, nullptr)
              << "row " << r << " differs in " << difference << ", rounding "
              << rounding << ", recipe " << recipe;
        }
      }
    }
  }
}

// weight_scale_2 x 2^26 is exact: also when the site is written by a caller who
// flushes subnormals.
TEST(Parallel, SitesAreWrittenTheSameInEveryMode) {
  harness h = harness_of(harness_config(64, 32, 8, 2, 16), 2, 4);
  Site site(h);
  const_cast<float*>(site.get()->site.down.weight_scale_2)[1] = 0x1.8p-140f;
  size_t bytes = 0;
  ASSERT_EQ(moeplan_site_size(site.get()->planner, &bytes),
            moeplan_status_success);
  ASSERT_EQ(harness_write_site(site.get()), moeplan_status_success);
  const auto* blob = static_cast<const uint8_t*>(site.get()->blob);
  const std::vector<uint8_t> plain(blob, blob + bytes);
  for (int rounding : kRoundings) {
    {
      const Mode mode(rounding, kFlush);
      ASSERT_EQ(harness_write_site(site.get()), moeplan_status_success);
    }
    EXPECT_EQ(std::memcmp(blob, plain.data(), bytes), 0)
        << "rounding " << rounding;
  }
}

}  // namespace
