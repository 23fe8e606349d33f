// The even split of rows into groups of at most `cap`.

#include <gtest/gtest.h>

extern "C" {
#include "lib/row_groups.h"
}

namespace {

template <typename Check>
void ForEverySplit(const Check& check) {
  for (uint32_t cap = 1; cap <= 8; cap++) {
    for (uint32_t rows = 1; rows <= 64; rows++) {
      SCOPED_TRACE(testing::Message() << rows << " rows, cap " << cap);
      check(rows, cap);
    }
  }
}

TEST(RowGroups, AreContiguousAndCoverEveryRow) {
  ForEverySplit([](uint32_t rows, uint32_t cap) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < moep_group_count(rows, cap); i++) {
      const moep_group group = moep_group_at(rows, cap, i);
      ASSERT_EQ(group.begin, next);
      ASSERT_GE(group.count, 1u);
      ASSERT_LE(group.count, cap);
      next = group.begin + group.count;
    }
    ASSERT_EQ(next, rows);
  });
}

TEST(RowGroups, DifferByAtMostOneWiderFirst) {
  ForEverySplit([](uint32_t rows, uint32_t cap) {
    const uint32_t first = moep_group_at(rows, cap, 0).count;
    uint32_t previous = first;
    for (uint32_t i = 1; i < moep_group_count(rows, cap); i++) {
      const uint32_t count = moep_group_at(rows, cap, i).count;
      ASSERT_LE(count, previous);
      ASSERT_GE(count + 1, first);
      previous = count;
    }
  });
}

TEST(RowGroups, AreAsFewAsTheCapAllows) {
  ForEverySplit([](uint32_t rows, uint32_t cap) {
    const uint32_t groups = moep_group_count(rows, cap);
    ASSERT_GE(groups * cap, rows);
    ASSERT_LT((groups - 1) * cap, rows);
  });
}

TEST(RowGroups, AreNeverOneRowAtCapEight) {
  for (uint32_t rows = 2; rows <= 4096; rows++) {
    for (uint32_t i = 0; i < moep_group_count(rows, 8); i++) {
      ASSERT_GE(moep_group_at(rows, 8, i).count, 2u) << rows << " rows";
    }
  }
}

void ExpectSplit(uint32_t rows, uint32_t cap,
                 std::initializer_list<moep_group> expected) {
  ASSERT_EQ(moep_group_count(rows, cap), expected.size()) << rows;
  uint32_t index = 0;
  for (const moep_group& group : expected) {
    const moep_group got = moep_group_at(rows, cap, index++);
    EXPECT_EQ(got.begin, group.begin) << rows << " rows, group " << index;
    EXPECT_EQ(got.count, group.count) << rows << " rows, group " << index;
  }
}

TEST(RowGroups, KnownSplits) {
  ExpectSplit(1, 8, {{0, 1}});
  ExpectSplit(8, 8, {{0, 8}});
  ExpectSplit(9, 8, {{0, 5}, {5, 4}});
  ExpectSplit(16, 8, {{0, 8}, {8, 8}});
  ExpectSplit(17, 8, {{0, 6}, {6, 6}, {12, 5}});
  ExpectSplit(3, 2, {{0, 2}, {2, 1}});
}

}  // namespace
