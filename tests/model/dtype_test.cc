#include "model/dtype.h"

#include <limits>

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

TEST(Bf16, RoundsToNearestEven) {
  struct Case {
    uint32_t single;
    uint16_t expected;
  };
  const Case cases[] = {
      {0x3F800000, 0x3F80},  // 1
      {0x3F807FFF, 0x3F80},  // below the midpoint
      {0x3F808000, 0x3F80},  // at the midpoint, rounds to even (down)
      {0x3F808001, 0x3F81},  // above the midpoint
      {0x3F818000, 0x3F82},  // at the midpoint, rounds to even (up)
      {0x80000000, 0x8000},  // -0
      {0x00000001, 0x0000},  // smallest subnormal
      {0x7F7FFFFF, 0x7F80},  // largest float, rounds to infinity
      {0xFF800000, 0xFF80},  // -infinity
  };
  for (const Case& c : cases) {
    EXPECT_EQ(FloatToBf16(std::bit_cast<float>(c.single)), c.expected) << std::hex << c.single;
  }
}

TEST(Bf16, KeepsNan) {
  // NaNs with only low payload bits must not round to infinity.
  for (const uint32_t bits : {0x7F800001U, 0x7FC00000U, 0xFFFFFFFFU}) {
    const uint16_t narrow = FloatToBf16(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(Bf16ToFloat(narrow))) << std::hex << bits;
    EXPECT_EQ(narrow >> 15, bits >> 31);
  }
}

TEST(Bf16, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(wide)) continue;
    ASSERT_EQ(FloatToBf16(wide), bits);
  }
}

}  // namespace
}  // namespace freshet
