// sort_count, sort_scan and sort_scatter against std::stable_sort.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/harness.h"

extern "C" {
#include "kernels/kernels.h"
}

namespace {

constexpr int32_t kPoison = 0x5A5A5A5A;

struct Sorted {
  std::vector<uint32_t> offsets;
  std::vector<int32_t> sorted, perm;
  uint64_t cursor = 0;
};

Sorted Sort(const std::vector<int32_t>& ids, uint32_t topk, uint32_t experts,
            uint32_t threads, const int32_t* live_rows) {
  const auto slots = static_cast<uint32_t>(ids.size());
  Sorted out;
  out.offsets.assign(experts + 2, kPoison);
  out.sorted.assign(slots + 1, kPoison);
  out.perm.assign(slots + 1, kPoison);
  std::vector<uint32_t> counts(
      moep_ceil_div(slots, MOEP_SORT_TILE) * experts + 1, kPoison);
  union moep_args args = {};
  args.sort_count.rows = {0, slots / topk, slots / topk, live_rows};
  args.sort_count.ids = ids.data();
  args.sort_count.counts = counts.data();
  args.sort_count.expert_offsets = out.offsets.data();
  args.sort_count.sorted_slots = out.sorted.data();
  args.sort_count.token_to_perm = out.perm.data();
  args.sort_count.trace_cursor = &out.cursor;
  args.sort_count.slots = slots;
  args.sort_count.topk = topk;
  args.sort_count.experts = experts;
  const moep_launch launch = {{1, 1}, threads, 0, 0};
  EXPECT_EQ(moep_sort_count_i32_host(&args, &launch, nullptr), cudaSuccess);
  EXPECT_EQ(moep_sort_scan_i32_host(&args, &launch, nullptr), cudaSuccess);
  EXPECT_EQ(moep_sort_scatter_i32_host(&args, &launch, nullptr), cudaSuccess);
  EXPECT_EQ(counts.back(), static_cast<uint32_t>(kPoison));
  EXPECT_EQ(out.offsets.back(), static_cast<uint32_t>(kPoison));
  EXPECT_EQ(out.sorted.back(), kPoison);
  EXPECT_EQ(out.perm.back(), kPoison);
  return out;
}

void ExpectSorted(const std::vector<int32_t>& ids, uint32_t topk,
                  uint32_t experts, uint32_t threads = 0) {
  SCOPED_TRACE(testing::Message() << ids.size() << " slots, topk " << topk
                                  << ", experts " << experts);
  const Sorted out = Sort(ids, topk, experts, threads, nullptr);
  std::vector<int32_t> expected;
  for (size_t s = 0; s < ids.size(); s++) {
    if (ids[s] >= 0) expected.push_back(static_cast<int32_t>(s));
  }
  const auto id = [&](int32_t s) { return ids[static_cast<size_t>(s)]; };
  std::stable_sort(expected.begin(), expected.end(),
                   [&](int32_t a, int32_t b) { return id(a) < id(b); });
  std::vector<uint32_t> offsets(experts + 1, 0);
  for (int32_t s : expected) offsets[static_cast<size_t>(id(s)) + 1]++;
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  ASSERT_TRUE(std::equal(offsets.begin(), offsets.end(), out.offsets.begin()));
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.sorted.begin()));
  std::vector<int32_t> perm(ids.size(), -1);
  for (size_t p = 0; p < expected.size(); p++) {
    perm[static_cast<size_t>(expected[p])] = static_cast<int32_t>(p);
  }
  ASSERT_TRUE(std::equal(perm.begin(), perm.end(), out.perm.begin()));
  for (size_t p = expected.size(); p < ids.size(); p++) {
    ASSERT_EQ(out.sorted[p], kPoison) << "position past the end written";
  }
  ASSERT_EQ(out.cursor, ids.size() / topk);
}

std::vector<int32_t> RandomIds(harness_random* random, size_t slots,
                               uint32_t experts, uint32_t unfilled_percent) {
  std::vector<int32_t> ids(slots);
  for (int32_t& id : ids) {
    id = harness_below(random, 100) < unfilled_percent
             ? -1
             : static_cast<int32_t>(harness_below(random, experts));
  }
  return ids;
}

constexpr uint32_t kExperts[] = {1, 2, 7, 8, 63, 64, 65, 255, 256, 257, 1024};

TEST(Sort, RandomIdsAroundTileBorders) {
  harness_random random = {1};
  for (size_t slots : {1, 2, 7, 8, 100, 1023, 1024, 1025, 2047, 2048, 2049,
                       4096, 4097, 9000}) {
    for (uint32_t experts : kExperts) {
      for (uint32_t unfilled : {0u, 30u}) {
        ExpectSorted(RandomIds(&random, slots, experts, unfilled), 1, experts);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Sort, RowsOfSeveralSlots) {
  harness_random random = {2};
  for (uint32_t topk : {2u, 8u, 9u, 32u}) {
    for (uint32_t rows : {1u, 31u, 128u, 129u, 600u}) {
      ExpectSorted(RandomIds(&random, rows * topk, 40, 10), topk, 40);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Sort, OneExpertTakesEverything) {
  for (uint32_t experts : kExperts) {
    for (uint32_t taker : {0u, experts / 2, experts - 1}) {
      const std::vector<int32_t> ids(3000, static_cast<int32_t>(taker));
      ExpectSorted(ids, 1, experts);
    }
  }
}

TEST(Sort, NothingIsFilled) {
  for (size_t slots : {1, 1024, 1025, 5000}) {
    ExpectSorted(std::vector<int32_t>(slots, -1), 1, 64);
  }
}

TEST(Sort, OneTileIsUnfilled) {
  harness_random random = {3};
  for (size_t tile = 0; tile < 4; tile++) {
    std::vector<int32_t> ids = RandomIds(&random, 4000, 16, 0);
    std::fill(ids.begin() + static_cast<long>(tile * 1024),
              ids.begin() +
                  static_cast<long>(std::min<size_t>(4000, tile * 1024 + 1024)),
              -1);
    ExpectSorted(ids, 1, 16);
  }
}

TEST(Sort, AscendingAndDescendingIds) {
  std::vector<int32_t> ids(8192);
  for (size_t s = 0; s < ids.size(); s++) ids[s] = static_cast<int32_t>(s / 8);
  ExpectSorted(ids, 8, 1024);
  std::reverse(ids.begin(), ids.end());
  ExpectSorted(ids, 8, 1024);
}

TEST(Sort, ThreadsDoNotMatter) {
  harness_random random = {4};
  const std::vector<int32_t> ids = RandomIds(&random, 20000, 33, 5);
  for (uint32_t threads : {1u, 2u, 3u, 64u}) ExpectSorted(ids, 8, 33, threads);
}

TEST(Sort, CursorMovesPastLiveRows) {
  for (int32_t live : {-1, 0, 1, 99, 100, 101, INT32_MAX}) {
    const Sorted out = Sort(std::vector<int32_t>(800, -1), 8, 16, 1, &live);
    EXPECT_EQ(out.cursor,
              static_cast<uint64_t>(std::min(100, std::max(0, live))));
  }
}

}  // namespace
