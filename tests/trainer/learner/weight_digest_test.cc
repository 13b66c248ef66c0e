#include "trainer/learner/weight_digest.h"

#include "gtest/gtest.h"
#include "tests/testing/test_device.h"

namespace freshet {
namespace {

// More than a chunk.
constexpr int64_t kElements = (int64_t{2} << 20) + 5;

TEST(AtenDigest, ChangesWithAnyBitAndWithTheOrder) {
  const at::Tensor numbers =
      at::arange(kElements, at::TensorOptions(TestDevice()).dtype(at::kFloat));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor flat = numbers.to(type);
    const uint64_t digest = AtenDigest(flat);
    EXPECT_EQ(AtenDigest(flat.clone()), digest);
    for (const int64_t place : {int64_t{1}, kElements - 1}) {
      const at::Tensor changed = flat.clone();
      changed[place].neg_();
      EXPECT_NE(AtenDigest(changed), digest);
    }
    EXPECT_NE(AtenDigest(flat.flip(0)), digest);
    EXPECT_NE(AtenDigest(flat.narrow(0, 0, kElements - 1)), digest);
  }
}

TEST(DigestOfWeights, TellsTensorsApart) {
  const at::Tensor flat = at::ones({100}, at::TensorOptions(TestDevice()).dtype(at::kFloat));
  EXPECT_EQ(DigestOfWeights(flat), DigestOfWeights(flat.clone()));
  EXPECT_NE(DigestOfWeights(flat), DigestOfWeights(flat * 2));
}

}  // namespace
}  // namespace freshet
