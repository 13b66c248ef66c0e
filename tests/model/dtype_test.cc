#include "model/dtype.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(Dtype, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Dtype::kBool); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(ParseDtype(DtypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDtype("F8_E4M3"), std::nullopt);
  EXPECT_EQ(DtypeBytes(Dtype::kBf16), 2U);
  EXPECT_EQ(DtypeBytes(Dtype::kBool), 1U);
}

}  // namespace
}  // namespace freshet
