#include "runlog/pass_at_k.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {
namespace {

// C(n, k) by Pascal's triangle; exact as a double up to n = 56.
double Binomial(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  std::vector<double> row(static_cast<size_t>(n) + 1, 0);
  row[0] = 1;
  for (int64_t i = 1; i <= n; ++i) {
    for (int64_t j = i; j > 0; --j) row[static_cast<size_t>(j)] += row[static_cast<size_t>(j) - 1];
  }
  return row[static_cast<size_t>(k)];
}

TEST(PassAtK, EqualsTheBinomialsForEverySmallCase) {
  for (int64_t n = 1; n <= 24; ++n) {
    for (int64_t c = 0; c <= n; ++c) {
      for (int64_t k = 1; k <= n; ++k) {
        EXPECT_NEAR(PassAtK(n, c, k), 1 - Binomial(n - c, k) / Binomial(n, k), 1e-14)
            << "n " << n << " c " << c << " k " << k;
      }
    }
  }
}

TEST(PassAtK, IsTheShareOfCorrectSamplesAtOne) {
  EXPECT_EQ(PassAtK(1, 0, 1), 0.0);
  EXPECT_EQ(PassAtK(1, 1, 1), 1.0);
  EXPECT_EQ(PassAtK(4, 1, 1), 0.25);
  EXPECT_EQ(PassAtK(8, 6, 1), 0.75);
}

TEST(PassAtK, NeverLeavesZeroToOneAndRisesWithKAndC) {
  constexpr int64_t kSamples = 1024;  // the most that a job may ask for
  for (const int64_t c : {1, 2, 511, 512, 1023}) {
    double last = 0;
    for (int64_t k = 1; k <= kSamples; ++k) {
      const double pass = PassAtK(kSamples, c, k);
      EXPECT_TRUE(std::isfinite(pass));
      EXPECT_GE(pass, last) << "c " << c << " k " << k;
      EXPECT_LE(pass, 1.0);
      EXPECT_GE(pass, PassAtK(kSamples, c - 1, k)) << "c " << c << " k " << k;
      last = pass;
    }
    EXPECT_EQ(last, 1.0) << "of all samples one is correct";
  }
}

}  // namespace
}  // namespace freshet
