// sort_count, sort_scan and sort_scatter on the GPU are the host's, by any grid.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/gpu_site.h"

extern "C" {
#include "kernels/kernels.h"
}

namespace {

constexpr uint64_t kCursor = (uint64_t{1} << 40) + 3;

struct Sorted {
  std::vector<uint32_t> offsets;
  std::vector<int32_t> sorted, perm;
  uint64_t cursor;
};

class SortGpu : public testing::Test {
 protected:
  void SetUp() override {
    MOEP_NEEDS_GPU();
    ASSERT_CUDA(moep_sort_count_i32_smxx_load());
    ASSERT_CUDA(moep_sort_scan_i32_smxx_load());
    ASSERT_CUDA(moep_sort_scatter_i32_smxx_load());
  }

  // blocks: of count and scatter; 0: on the host.
  static Sorted Sort(const std::vector<int32_t>& ids, uint32_t experts,
                     uint32_t blocks) {
    const bool host = blocks == 0;
    const auto slots = static_cast<uint32_t>(ids.size());
    const size_t bytes = size_t{slots} * 4;
    const uint32_t tiles = moep_ceil_div(slots, MOEP_SORT_TILE);
    const int32_t live = static_cast<int32_t>(slots - slots / 3);
    DeviceMemory in(host, bytes, ids.data()), sorted(host, bytes);
    DeviceMemory perm(host, bytes), counts(host, size_t{tiles} * experts * 4);
    DeviceMemory offsets(host, (experts + 1) * 4), live_rows(host, 4, &live);
    DeviceMemory cursor(host, sizeof(kCursor), &kCursor);
    for (DeviceMemory* memory : {&sorted, &perm, &counts, &offsets}) {
      memory->fill(0xA5);
    }
    union moep_args args = {};
    args.sort_count.rows = {0, slots, slots, live_rows.as<int32_t>()};
    args.sort_count.ids = in.as<int32_t>();
    args.sort_count.counts = counts.as<uint32_t>();
    args.sort_count.expert_offsets = offsets.as<uint32_t>();
    args.sort_count.sorted_slots = sorted.as<int32_t>();
    args.sort_count.token_to_perm = perm.as<int32_t>();
    args.sort_count.trace_cursor = cursor.as<uint64_t>();
    args.sort_count.slots = slots;
    args.sort_count.topk = 1;
    args.sort_count.experts = experts;
    const moep_launch all = {{std::max(blocks, 1u), 1}, 0, 0, 0};
    const moep_launch one = {{1, 1}, 0, 0, 0};
    using Step = std::pair<moep_launch_fn, const moep_launch*>;
    const Step steps[2][3] = {{{moep_sort_count_i32_smxx, &all},
                               {moep_sort_scan_i32_smxx, &one},
                               {moep_sort_scatter_i32_smxx, &all}},
                              {{moep_sort_count_i32_host, &all},
                               {moep_sort_scan_i32_host, &one},
                               {moep_sort_scatter_i32_host, &all}}};
    for (const Step& step : steps[host ? 1 : 0]) {
      EXPECT_EQ(step.first(&args, step.second, nullptr), cudaSuccess);
    }
    EXPECT_TRUE(host || cudaDeviceSynchronize() == cudaSuccess);
    Sorted out = {std::vector<uint32_t>(experts + 1),
                  std::vector<int32_t>(slots), std::vector<int32_t>(slots), 0};
    offsets.read(out.offsets.data(), offsets.bytes());
    sorted.read(out.sorted.data(), bytes);
    perm.read(out.perm.data(), bytes);
    cursor.read(&out.cursor, sizeof(out.cursor));
    return out;
  }

  static void Expect(uint32_t slots, uint32_t experts,
                     const std::function<int32_t(uint32_t)>& id) {
    std::vector<int32_t> ids(slots);
    for (uint32_t s = 0; s < slots; s++) ids[s] = id(s);
    const Sorted expected = Sort(ids, experts, 0);
    const uint32_t tiles = moep_ceil_div(slots, MOEP_SORT_TILE);
    for (uint32_t blocks : {tiles, 3u}) {
      const Sorted out = Sort(ids, experts, blocks);
      ASSERT_EQ(out.offsets, expected.offsets) << slots << " x " << experts;
      ASSERT_EQ(out.perm, expected.perm) << slots << " x " << experts;
      ASSERT_EQ(out.sorted, expected.sorted) << slots << " x " << experts;
      ASSERT_EQ(out.cursor, expected.cursor) << slots << " x " << experts;
    }
  }
};

TEST_F(SortGpu, RandomIdsSomeUnfilled) {
  for (uint32_t experts : {1u, 2u, 31u, 33u, 288u, 341u, 342u, 700u, 1024u}) {
    for (uint32_t slots : {1u, 31u, 1024u, 1025u, 65536u, 70001u}) {
      harness_random random = {experts + slots};
      Expect(slots, experts, [&](uint32_t) {
        return static_cast<int32_t>(harness_below(&random, experts + 1)) - 1;
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(SortGpu, AllOfOneExpertAndNone) {
  Expect(5000, 288, [](uint32_t) { return 287; });
  Expect(5000, 288, [](uint32_t) { return 0; });
  Expect(5000, 288, [](uint32_t) { return -1; });
  Expect(5000, 288, [](uint32_t s) { return s == 4999 ? 5 : -1; });
}

// More tiles than any grid has blocks for.
TEST_F(SortGpu, MillionsOfSlots) {
  harness_random random = {77};
  Expect((1u << 23) + 17, 288, [&](uint32_t) {
    return static_cast<int32_t>(harness_below(&random, 288));
  });
}

}  // namespace
