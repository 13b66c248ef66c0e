#include "base/word_digest.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr auto kWholePiece = static_cast<int64_t>(kDigestPieceBytes);

TEST(WordDigest, AddsLittleEndianWords) {
  // 0x0000000000000002 + 0xFFFFFFFFFFFFFFFF + 0x0000000000000201, modulo 2^64
  std::vector<std::byte> bytes(18);
  bytes[0] = std::byte{2};
  for (size_t i = 8; i < 16; ++i) bytes[i] = std::byte{0xFF};
  bytes[16] = std::byte{1};
  bytes[17] = std::byte{2};
  EXPECT_EQ(WordSum(bytes), 0x202U);
  EXPECT_EQ(WordSum({}), 0U);
}

TEST(WordDigest, IsTheHashOfThePiecesSums) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{8}, kWholePiece - 1, kWholePiece,
                             kWholePiece + 1, 5 * kWholePiece + 3}) {
    const WeightBytes bytes = PatternBytes(size, 1);
    const std::span<const std::byte> all(*bytes);
    std::vector<uint64_t> sums;
    for (size_t begin = 0; begin < all.size(); begin += kDigestPieceBytes) {
      sums.push_back(WordSum(all.subspan(begin, std::min(kDigestPieceBytes, all.size() - begin))));
    }
    EXPECT_EQ(WordDigest(all), Xxh3(sums.data(), sums.size() * sizeof(uint64_t))) << size;
  }
}

TEST(WordDigest, TellsVersionsApart) {
  const WeightBytes bytes = PatternBytes(2 * kWholePiece + 5, 1);
  const uint64_t digest = WordDigest(*bytes);
  for (const size_t index : {size_t{0}, kDigestPieceBytes, bytes->size() - 1}) {
    EXPECT_NE(WordDigest(*Torn(bytes, index)), digest) << index;
  }
}

}  // namespace
}  // namespace freshet
