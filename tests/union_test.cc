// The union table of a verify group, against a plain model of its rows' ids.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/harness.h"

extern "C" {
#include "kernels/union.h"
}

namespace {

struct Table {
  uint32_t used;
  int32_t eid[MOEP_UNION_ENTRIES];
  int32_t slot[MOEP_UNION_ENTRIES][MOEP_UNION_ROWS];
};

Table Build(const std::vector<int32_t>& ids, uint32_t rows, uint32_t topk,
            uint32_t experts) {
  Table table;
  std::fill_n(table.eid, MOEP_UNION_ENTRIES, 0x5A5A5A5A);
  std::fill_n(table.slot[0], MOEP_UNION_ENTRIES * MOEP_UNION_ROWS, 0x5A5A5A5A);
  table.used = moep_union_build(ids.data(), rows, topk, experts, table.eid,
                                table.slot[0]);
  return table;
}

// Every property that moep_union_build's comment promises.
void ExpectUnion(const std::vector<int32_t>& ids, uint32_t rows, uint32_t topk,
                 uint32_t experts) {
  const Table table = Build(ids, rows, topk, experts);
  // An expert has as many entries as the row that names it most often, and they
  // appear when that row needs another one.
  std::vector<int32_t> expected;
  std::map<int32_t, uint32_t> entries;
  std::set<std::pair<uint32_t, uint32_t>> wanted, claimed;
  for (uint32_t r = 0; r < rows; r++) {
    std::map<int32_t, uint32_t> seen;
    for (uint32_t j = 0; j < topk; j++) {
      const int32_t id = ids[r * topk + j];
      if (id < 0 || id >= static_cast<int32_t>(experts)) continue;
      wanted.insert({r, j});
      if (++seen[id] > entries[id]) {
        entries[id]++;
        expected.push_back(id);
      }
    }
  }
  ASSERT_EQ(table.used, expected.size());
  ASSERT_LE(table.used, static_cast<uint32_t>(MOEP_UNION_ENTRIES));
  for (uint32_t u = 0; u < MOEP_UNION_ENTRIES; u++) {
    ASSERT_EQ(table.eid[u], u < table.used ? expected[u] : -1) << "entry " << u;
    for (uint32_t r = 0; r < MOEP_UNION_ROWS; r++) {
      const int32_t j = table.slot[u][r];
      if (j == -1) continue;
      ASSERT_LT(u, table.used);
      ASSERT_LT(r, rows);
      ASSERT_GE(j, 0);
      ASSERT_LT(j, static_cast<int32_t>(topk));
      ASSERT_EQ(ids[r * topk + static_cast<uint32_t>(j)], table.eid[u]);
      ASSERT_TRUE(claimed.insert({r, static_cast<uint32_t>(j)}).second)
          << "row " << r << ", slot " << j << " claimed twice";
    }
  }
  ASSERT_EQ(claimed, wanted);
}

constexpr uint32_t kTopks[] = {1, 2, 4, 8, 9, 16, 32};

uint32_t Cap(uint32_t topk) { return std::min(8u, MOEP_UNION_ENTRIES / topk); }

TEST(Union, RandomIdsAtEveryRowCount) {
  harness_random random = {1};
  for (uint32_t topk : kTopks) {
    for (uint32_t rows = 1; rows <= Cap(topk); rows++) {
      // Few experts: ids repeat inside rows; many: no row shares any.
      for (uint32_t experts : {1u, 2u, 5u, 16u, 64u, 288u, 1024u}) {
        for (int i = 0; i < 40; i++) {
          std::vector<int32_t> ids(rows * topk);
          for (int32_t& id : ids) {
            id = static_cast<int32_t>(harness_below(&random, experts));
          }
          SCOPED_TRACE(testing::Message() << "topk " << topk << ", rows "
                                          << rows << ", experts " << experts);
          ExpectUnion(ids, rows, topk, experts);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Union, IdsOutsideClaimNothing) {
  harness_random random = {2};
  const int32_t outside[] = {-1, -2, INT32_MIN, 24, 25, 1024, INT32_MAX};
  for (uint32_t topk : kTopks) {
    for (uint32_t rows = 1; rows <= Cap(topk); rows++) {
      for (int i = 0; i < 100; i++) {
        std::vector<int32_t> ids(rows * topk);
        for (int32_t& id : ids) {
          const uint32_t pick = harness_below(&random, 14);
          id = pick < 7 ? outside[pick]
                        : static_cast<int32_t>(harness_below(&random, 24));
        }
        ExpectUnion(ids, rows, topk, 24);
        if (HasFatalFailure()) return;
      }
      const Table none =
          Build(std::vector<int32_t>(rows * topk, -1), rows, topk, 24);
      EXPECT_EQ(none.used, 0u);
    }
  }
}

TEST(Union, DistinctIdsMakeOneEntryPerExpert) {
  // As the router gives them: distinct inside a row.
  harness_random random = {3};
  for (int i = 0; i < 300; i++) {
    std::vector<int32_t> ids, all(20);
    for (int32_t e = 0; e < 20; e++) all[static_cast<size_t>(e)] = e;
    for (int r = 0; r < 8; r++) {
      for (uint32_t n = 20; n > 1; n--) {
        std::swap(all[n - 1], all[harness_below(&random, n)]);
      }
      ids.insert(ids.end(), all.begin(), all.begin() + 8);
    }
    const Table table = Build(ids, 8, 8, 20);
    const std::set<int32_t> distinct(ids.begin(), ids.end());
    ASSERT_EQ(table.used, distinct.size());
    ASSERT_EQ(std::set<int32_t>(table.eid, table.eid + table.used), distinct);
    ExpectUnion(ids, 8, 8, 20);
  }
}

TEST(Union, FullTable) {
  std::vector<int32_t> ids(64);
  for (int32_t i = 0; i < 64; i++) ids[static_cast<size_t>(i)] = 1000 - i;
  ExpectUnion(ids, 8, 8, 1024);
  EXPECT_EQ(Build(ids, 8, 8, 1024).used, 64u);
  // The same expert in every slot: as many entries as slots of a row.
  EXPECT_EQ(Build(std::vector<int32_t>(64, 7), 8, 8, 1024).used, 8u);
  ExpectUnion(std::vector<int32_t>(64, 7), 8, 8, 1024);
  ExpectUnion(std::vector<int32_t>(64, 7), 2, 32, 1024);
}

TEST(Union, ByHand) {
  const Table table = Build({3, 1, 3, 9, 1, 3, -1, 2}, 2, 4, 8);
  ASSERT_EQ(table.used, 4u);
  const int32_t eid[] = {3, 1, 3, 2};
  const int32_t slots[][2] = {{0, 1}, {1, 0}, {2, -1}, {-1, 3}};
  for (int u = 0; u < 4; u++) {
    EXPECT_EQ(table.eid[u], eid[u]);
    EXPECT_EQ(table.slot[u][0], slots[u][0]);
    EXPECT_EQ(table.slot[u][1], slots[u][1]);
  }
}

}  // namespace
