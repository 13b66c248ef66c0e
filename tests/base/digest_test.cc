#include "base/digest.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

// FIPS 180-4 examples.
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kMillionA[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, GivesTheKnownVectors) {
  EXPECT_EQ(Sha256Hex(""), kEmpty);
  EXPECT_EQ(Sha256Hex("abc"), kAbc);
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  Sha256 hash;
  for (int i = 0; i < 1'000'000 / 64; ++i) hash.Update(std::string(64, 'a'));
  EXPECT_EQ(hash.FinishHex(), kMillionA);
  Sha256 by_primes;
  for (int left = 1'000'000; left > 0;) {
    const int part = left < 997 ? left : 997;
    by_primes.Update(std::string(static_cast<size_t>(part), 'a'));
    left -= part;
  }
  EXPECT_EQ(by_primes.FinishHex(), kMillionA);
}

TEST(Sha256, TreatsZeroBytesAsContent) {
  EXPECT_NE(Sha256Hex(std::string("a\0b", 3)), Sha256Hex("ab"));
  EXPECT_NE(Sha256Hex(std::string(1, '\0')), kEmpty);
}

TEST(Sha256File, HashesContentsLargerThanItsBuffer) {
  const TestDirectory dir;
  const std::string contents((size_t{3} << 20) + 7, 'x');
  const auto hash = Sha256File(dir.Write("large", contents));
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(*hash, Sha256Hex(contents));
}

TEST(Sha256File, SaysNotFoundWithThePath) {
  const auto hash = Sha256File("/nonexistent/file");
  EXPECT_EQ(hash.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(hash.status().message().find("/nonexistent/file"), absl::string_view::npos);
}

TEST(Xxh3, GivesTheKnownVectors) {
  // Values of XXH3_64bits of the reference implementation.
  EXPECT_EQ(Xxh3("", 0), 0x2D06800538D394C2ULL);
  EXPECT_EQ(Hex64(Xxh3("", 0)), "2d06800538d394c2");
}

TEST(Xxh3, SeesEveryByteAndTheSeed) {
  std::string bytes(300, 'q');
  const uint64_t whole = Xxh3(bytes.data(), bytes.size());
  EXPECT_NE(Xxh3(bytes.data(), bytes.size(), 1), whole);
  EXPECT_NE(Xxh3(bytes.data(), bytes.size() - 1), whole);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 1;
    EXPECT_NE(Xxh3(bytes.data(), bytes.size()), whole) << "byte " << i;
    bytes[i] ^= 1;
  }
}

TEST(Hex64, KeepsLeadingZeros) {
  EXPECT_EQ(Hex64(0), "0000000000000000");
  EXPECT_EQ(Hex64(0xABC), "0000000000000abc");
  EXPECT_EQ(Hex64(~uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace freshet
