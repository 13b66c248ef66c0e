#include "model/dtype.h"

#include <bit>
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

TEST(Dtype, RoundsToTheNearestBf16) {
  using Limits = std::numeric_limits<float>;
  const struct {
    const char* name;
    float value;
    uint16_t bits;
  } cases[] = {
      {"zero", 0.0F, 0x0000},
      {"negative zero", -0.0F, 0x8000},
      {"exact", -1.5F, 0xBFC0},
      {"below half", 0x1.00FFp0F, 0x3F80},
      {"half, to even below", 0x1.01p0F, 0x3F80},
      {"half, to even above", 0x1.03p0F, 0x3F82},
      {"above half", 0x1.0101p0F, 0x3F81},
      {"carry into the exponent", 0x1.FFp0F, 0x4000},
      {"smallest subnormal", Limits::denorm_min(), 0x0000},
      {"largest subnormal", 0x1.FFFFFCp-127F, 0x0080},
      {"largest", Limits::max(), 0x7F80},
      {"largest bf16", 0x1.FEp127F, 0x7F7F},
      {"infinity", -Limits::infinity(), 0xFF80},
  };
  for (const auto& c : cases) EXPECT_EQ(RoundToBf16(c.value), c.bits) << c.name;
  for (const uint32_t nan : {0x7F800001U, 0xFFFFFFFFU, 0x7FC00000U}) {
    EXPECT_EQ(RoundToBf16(std::bit_cast<float>(nan)) & 0x7FC0, 0x7FC0) << nan;
  }
}

}  // namespace
}  // namespace freshet
