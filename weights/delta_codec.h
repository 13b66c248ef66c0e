#ifndef FRESHET_WEIGHTS_DELTA_CODEC_H_
#define FRESHET_WEIGHTS_DELTA_CODEC_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "weights/manifest.h"

namespace freshet {

// Encodes a piece of a version as its difference from the same piece of another version, the base,
// without loss. A training step moves most weights by less than one unit in the last place of bf16,
// so most differences are zero.
//
// The encoding is one zstd frame. It holds, for words of 2 bytes (bf16) or 4: the difference of
// each word from the base's, modulo 2^bits, with the sign in the lowest bit (0, -1, 1, -2 become 0,
// 1, 2, 3); of these the lowest byte of every word, then the next byte of every word, and so on;
// then the bytes behind the last whole word as they are.
//
// Keeps twice the size of the largest piece, and zstd's contexts. Confined to one thread at a time.
class DeltaCodec {
 public:
  // `manifest` gives the size of words.
  explicit DeltaCodec(const WeightManifest& manifest);
  ~DeltaCodec();

  // Requires pieces of equal size. Absent: the encoding would not be smaller than `piece`, or there
  // is no memory for it.
  std::optional<std::string> Encode(std::span<const std::byte> piece,
                                    std::span<const std::byte> base);

  // Returns the piece, which has the size of `base` and is valid until the next call. What it
  // allocates does not depend on `encoded`. Does not detect every change of `encoded`: verify the
  // piece.
  //   DATA_LOSS: `encoded` is not the encoding of a piece of that size.
  //   RESOURCE_EXHAUSTED: out of memory.
  absl::StatusOr<std::string_view> Decode(std::string_view encoded,
                                          std::span<const std::byte> base);

 private:
  struct Contexts;

  const size_t word_bytes_;
  const std::unique_ptr<Contexts> contexts_;  // of zstd
  std::vector<unsigned char> planes_;
  std::string piece_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_DELTA_CODEC_H_
