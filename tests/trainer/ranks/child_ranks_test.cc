#include "trainer/ranks/child_ranks.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(OnlyGpu, IsOneOfThoseThatTheProcessSees) {
  EXPECT_EQ(OnlyGpu(nullptr, 2), "2");
  EXPECT_EQ(OnlyGpu("5,7,GPU-8f1", 1), "7");
  EXPECT_EQ(OnlyGpu("5,7,GPU-8f1", 2), "GPU-8f1");
}

// CUDA then finds no GPU, which is an error of the rank.
TEST(OnlyGpu, IsNoneWithTooFew) {
  EXPECT_EQ(OnlyGpu("5", 1), "");
  EXPECT_EQ(OnlyGpu("", 1), "");
}

}  // namespace
}  // namespace freshet
