#ifndef FRESHET_BASE_WORD_DIGEST_H_
#define FRESHET_BASE_WORD_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace freshet {

// A digest that a GPU computes as fast as it reads the bytes: XXH3 of the sums of the pieces'
// 64-bit words. It tells versions apart and notices a copy that is not complete; it does not notice
// words of a piece that have changed places.

inline constexpr size_t kDigestPieceBytes = size_t{4} << 20;  // the last piece may be shorter

// Sum of the little-endian 64-bit words, modulo 2^64. A last word that is shorter is followed by
// zeros.
uint64_t WordSum(std::span<const std::byte> piece);

// The digest of bytes whose pieces have these sums.
uint64_t DigestOfSums(std::span<const uint64_t> sums);

// The digest of `bytes`. Uses up to 8 threads.
uint64_t WordDigest(std::span<const std::byte> bytes);

}  // namespace freshet

#endif  // FRESHET_BASE_WORD_DIGEST_H_
