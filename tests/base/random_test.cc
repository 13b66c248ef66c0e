#include "base/random.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(Mix64, IsSplitMix64) {
  // First outputs of the reference generator with seed 0. Its state advances by the golden gamma.
  constexpr uint64_t kGamma = 0x9E3779B97F4A7C15ULL;
  EXPECT_EQ(Mix64(0), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(Mix64(kGamma), 0x6E789E6AA1B965F4ULL);
  EXPECT_EQ(Mix64(kGamma + kGamma), 0x06C45D188009454FULL);
}

// Checkpoints and evaluations depend on these streams; they must not change between releases.
TEST(RandomBits, IsStable) {
  EXPECT_EQ(RandomBits(0, 0), Mix64(Mix64(Mix64(Mix64(0)))));
  EXPECT_EQ(RandomBits(17, 1, 2, 3), Mix64(Mix64(Mix64(Mix64(17) ^ 1) ^ 2) ^ 3));
  EXPECT_EQ(RandomBits(17, 1, 2), RandomBits(17, 1, 2, 0));
}

TEST(RandomBits, DependsOnEveryKeyAndItsPlace) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t a = 0; a < 10; ++a) {
      for (uint64_t b = 0; b < 10; ++b) {
        for (uint64_t c = 0; c < 10; ++c) seen.insert(RandomBits(seed, a, b, c));
      }
    }
  }
  EXPECT_EQ(seen.size(), 10000U);
}

TEST(ToUniform, StaysBelowOne) {
  EXPECT_EQ(ToUniform(0), 0.0);
  EXPECT_LT(ToUniform(~uint64_t{0}), 1.0);
  EXPECT_EQ(ToUniform(~uint64_t{0}), 1.0 - std::ldexp(1.0, -53));
  EXPECT_EQ(ToUniform(uint64_t{1} << 63), 0.5);
}

// Chi-square over 100 cells: mean 99, standard deviation 14. 170 is 5 deviations above the mean.
double ChiSquare(const std::vector<double>& draws) {
  std::vector<double> counts(100, 0.0);
  for (const double u : draws) counts[static_cast<size_t>(u * 100.0)] += 1.0;
  const double expected = static_cast<double>(draws.size()) / 100.0;
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(RandomBits, IsRoughlyUniformAlongEachKey) {
  constexpr uint64_t kDraws = 100'000;
  std::vector<double> by_position, by_sample, by_ordinal;
  for (uint64_t i = 0; i < kDraws; ++i) {
    by_position.push_back(ToUniform(RandomBits(1, 5, 3, i)));
    by_sample.push_back(ToUniform(RandomBits(1, 5, i, 3)));
    by_ordinal.push_back(ToUniform(RandomBits(1, i, 5, 3)));
  }
  for (const auto* draws : {&by_position, &by_sample, &by_ordinal}) {
    EXPECT_LT(ChiSquare(*draws), 170.0);
    EXPECT_GT(ChiSquare(*draws), 40.0) << "too even to be random";
  }
}

TEST(RandomBits, NeighbouringPositionsAreUncorrelated) {
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    sum +=
        (ToUniform(RandomBits(9, 1, 2, i)) - 0.5) * (ToUniform(RandomBits(9, 1, 2, i + 1)) - 0.5);
  }
  // The product's variance is 1/144, so the mean's deviation is 1/12/sqrt(n). Allows 5.
  EXPECT_LT(std::abs(sum / kDraws), 5.0 / 12.0 / std::sqrt(kDraws));
}

}  // namespace
}  // namespace freshet
