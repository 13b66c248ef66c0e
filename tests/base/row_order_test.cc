#include "base/row_order.h"

#include <vector>

#include "base/permutation.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

std::vector<int64_t> Pass(uint64_t seed, int64_t size, int64_t pass) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < size; ++i)
    rows.push_back(RowOfOrdinal(seed, size, pass * size + i, true));
  return rows;
}

class RowOrder : public testing::TestWithParam<int64_t> {};

TEST_P(RowOrder, EveryPassTakesEveryRowOnce) {
  const int64_t size = GetParam();
  for (const uint64_t seed : {0u, 1u, 99u}) {
    for (int64_t pass = 0; pass < 3; ++pass) {
      std::vector<int> seen(static_cast<size_t>(size), 0);
      for (const int64_t row : Pass(seed, size, pass)) {
        ASSERT_GE(row, 0);
        ASSERT_LT(row, size);
        ++seen[static_cast<size_t>(row)];
      }
      for (const int times : seen) ASSERT_EQ(times, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowOrder,
                         testing::Values(1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 101, 1000, 1319, 4096,
                                         8000));

TEST(RowOrder, PassesAndSeedsDiffer) {
  EXPECT_NE(Pass(1, 100, 0), Pass(1, 100, 1));
  EXPECT_NE(Pass(1, 100, 0), Pass(2, 100, 0));
  std::vector<int64_t> in_order;
  for (int64_t i = 0; i < 100; ++i) in_order.push_back(i);
  EXPECT_NE(Pass(1, 100, 0), in_order);
}

TEST(RowOrder, KeepsTheOrderWithoutShuffle) {
  for (int64_t ordinal = 0; ordinal < 25; ++ordinal) {
    EXPECT_EQ(RowOfOrdinal(1, 10, ordinal, false), ordinal % 10);
  }
}

TEST(RowOrder, OrdinalAloneDecides) {
  // The result does not depend on earlier calls, so a resumed job continues in the same order.
  const std::vector<int64_t> pass = Pass(3, 1319, 4);
  EXPECT_EQ(RowOfOrdinal(3, 1319, 4 * 1319 + 700, true), pass[700]);
  EXPECT_EQ(RowOfOrdinal(3, 1319, 4 * 1319, true), pass[0]);
}

TEST(RowOrder, OrderIsPinned) {
  // A changed order would make a resumed job repeat some rows of the pass and skip others.
  EXPECT_EQ(Pass(1, 8, 0), (std::vector<int64_t>{4, 3, 5, 7, 1, 0, 6, 2}));
}

TEST(Permutation, SpreadsEachIndexOverTheRange) {
  // 4,000 keys put index 0 of 10 in each slot about 400 times. The standard deviation is sqrt(4000
  // * 0.1 * 0.9) = 19; allows more than 5 deviations.
  std::vector<int> slots(10, 0);
  for (uint64_t key = 0; key < 4000; ++key) ++slots[static_cast<size_t>(Permute(key, 10, 0))];
  for (const int count : slots) EXPECT_NEAR(count, 400, 100);
}

TEST(Permutation, StaysInALargeRange) {
  const int64_t size = (int64_t{1} << 62) - 57;
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t image = Permute(5, size, size - 1 - i);
    EXPECT_GE(image, 0);
    EXPECT_LT(image, size);
  }
  EXPECT_LT(Permute(5, int64_t{1} << 62, 0), int64_t{1} << 62);
}

}  // namespace
}  // namespace freshet
