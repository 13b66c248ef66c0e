#include "cli/tensorboard/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace freshet {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43U);
}

TEST(Crc32c, MaskRotatesAndAdds) {
  const uint32_t crc = Crc32c("foo");
  EXPECT_EQ(MaskedCrc32c("foo"), ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

}  // namespace
}  // namespace freshet
