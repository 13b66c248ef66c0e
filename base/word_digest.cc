#include "base/word_digest.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/thread_pool.h"

namespace freshet {

uint64_t WordSum(std::span<const std::byte> piece) {
  uint64_t sum = 0;
  uint64_t word = 0;
  const size_t whole = piece.size() / sizeof(word) * sizeof(word);
  for (size_t i = 0; i < whole; i += sizeof(word)) {
    std::memcpy(&word, piece.data() + i, sizeof(word));
    sum += word;
  }
  word = 0;
  if (whole < piece.size()) std::memcpy(&word, piece.data() + whole, piece.size() - whole);
  return sum + word;
}

uint64_t DigestOfSums(std::span<const uint64_t> sums) {
  return Xxh3(sums.data(), sums.size_bytes());
}

uint64_t WordDigest(std::span<const std::byte> bytes) {
  // As many as reach what memory delivers.
  constexpr int64_t kMostThreads = 8;
  const size_t pieces = (bytes.size() + kDigestPieceBytes - 1) / kDigestPieceBytes;
  std::vector<uint64_t> sums(pieces);
  const int64_t threads = std::min({int64_t{std::thread::hardware_concurrency()}, kMostThreads,
                                    static_cast<int64_t>(pieces / 2)});
  ThreadPool pool(static_cast<int>(std::max(threads, int64_t{1})));
  pool.For(static_cast<int64_t>(pieces), [&](int64_t piece, int) {
    const size_t begin = static_cast<size_t>(piece) * kDigestPieceBytes;
    const size_t size = std::min(kDigestPieceBytes, bytes.size() - begin);
    sums[static_cast<size_t>(piece)] = WordSum(bytes.subspan(begin, size));
  });
  return DigestOfSums(sums);
}

}  // namespace freshet
