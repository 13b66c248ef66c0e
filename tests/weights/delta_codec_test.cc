#include "weights/delta_codec.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using PieceBytes = std::vector<std::byte>;

WeightManifest ManifestOf(const std::string& dtype) {
  WeightManifest manifest;
  manifest.entries = {{"all", dtype, {}, 0}};
  return manifest;
}

PieceBytes RandomPiece(size_t size, uint64_t seed) {
  PieceBytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(RandomBits(seed, i));
  return bytes;
}

// `base` after a step that moves one of `every` 16-bit words up or down by 1.
PieceBytes StepFrom(const PieceBytes& base, size_t every, uint64_t seed) {
  PieceBytes bytes = base;
  for (size_t at = 0; at + 2 <= bytes.size(); at += 2) {
    const uint64_t bits = RandomBits(seed, at);
    if (bits % every != 0) continue;
    uint16_t word = 0;
    std::memcpy(&word, bytes.data() + at, 2);
    word = static_cast<uint16_t>(bits >> 63 != 0 ? word + 1 : word - 1);
    std::memcpy(bytes.data() + at, &word, 2);
  }
  return bytes;
}

bool Equal(std::string_view text, const PieceBytes& bytes) {
  return text.size() == bytes.size() && std::memcmp(text.data(), bytes.data(), text.size()) == 0;
}

TEST(DeltaCodec, GivesThePieceAgainWhateverItsSize) {
  for (const char* dtype : {"BF16", "F32"}) {
    DeltaCodec codec(ManifestOf(dtype));
    for (const size_t size : {100U, 101U, 102U, 103U, 1000U, 65'537U, 1U << 20}) {
      const PieceBytes base = RandomPiece(size, 1);
      // Words whose difference wraps around, whose sign changes, and that stay.
      PieceBytes piece = base;
      std::fill(piece.begin(), piece.begin() + 8, std::byte{0xFF});
      piece[8] ^= std::byte{0x80};
      piece[9] ^= std::byte{0x80};
      piece.back() ^= std::byte{1};
      const std::optional<std::string> encoded = codec.Encode(piece, base);
      ASSERT_TRUE(encoded.has_value()) << dtype << " " << size;
      EXPECT_LT(encoded->size(), size);
      const auto decoded = codec.Decode(*encoded, base);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_TRUE(Equal(*decoded, piece)) << dtype << " " << size;
    }
  }
}

TEST(DeltaCodec, AStepThatMovesFewWordsIsSmall) {
  DeltaCodec codec(ManifestOf("BF16"));
  const PieceBytes base = RandomPiece(1 << 20, 1);
  // One of 8 words, up or down: (0.54 + 0.125) bits of information a word, 4.2 % of 16.
  const auto encoded = codec.Encode(StepFrom(base, 8, 2), base);
  ASSERT_TRUE(encoded.has_value());
  EXPECT_LT(encoded->size(), base.size() / 12);
  const auto same = codec.Encode(base, base);
  ASSERT_TRUE(same.has_value());
  EXPECT_LT(same->size(), base.size() / 1000);
}

TEST(DeltaCodec, APieceThatDoesNotGetSmallerIsNotEncoded) {
  DeltaCodec codec(ManifestOf("BF16"));
  EXPECT_FALSE(codec.Encode(RandomPiece(1 << 16, 1), RandomPiece(1 << 16, 2)).has_value());
  EXPECT_FALSE(codec.Encode(RandomPiece(1, 1), RandomPiece(1, 1)).has_value());
  EXPECT_FALSE(codec.Encode({}, {}).has_value());
}

TEST(DeltaCodec, RefusesATruncatedEncoding) {
  DeltaCodec codec(ManifestOf("BF16"));
  const PieceBytes base = RandomPiece(2000, 1);
  const std::optional<std::string> encoded = codec.Encode(StepFrom(base, 4, 2), base);
  ASSERT_TRUE(encoded.has_value());
  for (size_t size = 0; size < encoded->size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(codec.Decode(encoded->substr(0, size), base).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(codec.Decode(*encoded + "x", base).status()));
}

TEST(DeltaCodec, RefusesAnEncodingOfAnotherSize) {
  DeltaCodec codec(ManifestOf("BF16"));
  const PieceBytes base = RandomPiece(2000, 1);
  const std::optional<std::string> encoded = codec.Encode(StepFrom(base, 4, 2), base);
  ASSERT_TRUE(encoded.has_value());
  for (const size_t size : {1U, 2U, 1999U, 2001U, 4000U}) {
    EXPECT_TRUE(absl::IsDataLoss(codec.Decode(*encoded, RandomPiece(size, 1)).status())) << size;
  }
}

TEST(DeltaCodec, ASmallEncodingOfManyBytesWritesNoFurtherThanThePiece) {
  const PieceBytes many(64 << 20);
  const std::optional<std::string> encoded = DeltaCodec(ManifestOf("F32")).Encode(many, many);
  ASSERT_TRUE(encoded.has_value());
  ASSERT_LT(encoded->size(), 64U << 10);
  DeltaCodec codec(ManifestOf("F32"));
  EXPECT_TRUE(absl::IsDataLoss(codec.Decode(*encoded, PieceBytes(64)).status()));
}

TEST(DeltaCodec, ChangedBytesGiveAnErrorOrAPieceOfTheSameSize) {
  DeltaCodec codec(ManifestOf("BF16"));
  const PieceBytes base = RandomPiece(2000, 1);
  const PieceBytes piece = StepFrom(base, 4, 2);
  const std::optional<std::string> encoded = codec.Encode(piece, base);
  ASSERT_TRUE(encoded.has_value());
  int refused = 0;
  for (size_t at = 0; at < encoded->size(); ++at) {
    std::string changed = *encoded;
    changed[at] = static_cast<char>(changed[at] ^ (1 << RandomBits(3, at) % 8));
    const auto decoded = codec.Decode(changed, base);
    if (decoded.ok()) {
      EXPECT_EQ(decoded->size(), base.size());
    } else {
      EXPECT_TRUE(absl::IsDataLoss(decoded.status())) << decoded.status();
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  // The codec still works.
  const auto decoded = codec.Decode(*encoded, base);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(Equal(*decoded, piece));
}

}  // namespace
}  // namespace freshet
