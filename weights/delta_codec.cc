#include "weights/delta_codec.h"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kZstdLevel = 1;  // higher ones cost more time than they save

template <typename Word>
Word LoadWord(const void* bytes, size_t index) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(bytes) + index * sizeof(Word), sizeof(Word));
  return word;
}

template <typename Word>
void SplitWords(const void* piece, const void* base, size_t words, unsigned char* planes) {
  constexpr int kBits = 8 * sizeof(Word);
  for (size_t i = 0; i < words; ++i) {
    const auto difference = static_cast<Word>(LoadWord<Word>(piece, i) - LoadWord<Word>(base, i));
    const auto sign = static_cast<Word>(0 - (difference >> (kBits - 1)));
    const auto coded = static_cast<Word>(static_cast<Word>(difference << 1) ^ sign);
    for (size_t plane = 0; plane < sizeof(Word); ++plane) {
      planes[plane * words + i] = static_cast<unsigned char>(coded >> (8 * plane));
    }
  }
}

template <typename Word>
void JoinWords(const unsigned char* planes, const void* base, size_t words, char* piece) {
  for (size_t i = 0; i < words; ++i) {
    Word coded = 0;
    for (size_t plane = 0; plane < sizeof(Word); ++plane) {
      coded =
          static_cast<Word>(coded | static_cast<Word>(planes[plane * words + i]) << (8 * plane));
    }
    const auto sign = static_cast<Word>(0 - (coded & 1));
    const auto difference = static_cast<Word>((coded >> 1) ^ sign);
    const auto word = static_cast<Word>(LoadWord<Word>(base, i) + difference);
    std::memcpy(piece + i * sizeof(Word), &word, sizeof(Word));
  }
}

size_t WordBytes(const WeightManifest& manifest) {
  return !manifest.entries.empty() && manifest.entries[0].dtype == "BF16" ? 2 : 4;
}

}  // namespace

struct DeltaCodec::Contexts {
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
  // Null before the first use, or without memory.
  ZSTD_CCtx* compress = nullptr;
  ZSTD_DCtx* decompress = nullptr;
};

DeltaCodec::DeltaCodec(const WeightManifest& manifest)
    : word_bytes_(WordBytes(manifest)), contexts_(std::make_unique<Contexts>()) {}

DeltaCodec::~DeltaCodec() = default;

std::optional<std::string> DeltaCodec::Encode(std::span<const std::byte> piece,
                                              std::span<const std::byte> base) try {
  FRESHET_CHECK(piece.size() == base.size());
  if (contexts_->compress == nullptr) contexts_->compress = ZSTD_createCCtx();
  if (contexts_->compress == nullptr || piece.empty()) return std::nullopt;
  const size_t words = piece.size() / word_bytes_;
  const size_t whole = words * word_bytes_;
  planes_.resize(piece.size());
  if (word_bytes_ == 2) {
    SplitWords<uint16_t>(piece.data(), base.data(), words, planes_.data());
  } else {
    SplitWords<uint32_t>(piece.data(), base.data(), words, planes_.data());
  }
  std::memcpy(planes_.data() + whole, piece.data() + whole, piece.size() - whole);
  std::string encoded(ZSTD_compressBound(piece.size()), '\0');
  const size_t size = ZSTD_compressCCtx(contexts_->compress, encoded.data(), encoded.size(),
                                        planes_.data(), planes_.size(), kZstdLevel);
  if (ZSTD_isError(size) != 0 || size >= piece.size()) return std::nullopt;
  encoded.resize(size);
  return encoded;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

absl::StatusOr<std::string_view> DeltaCodec::Decode(std::string_view encoded,
                                                    std::span<const std::byte> base) try {
  if (contexts_->decompress == nullptr) contexts_->decompress = ZSTD_createDCtx();
  if (contexts_->decompress == nullptr) {
    return ResourceExhausted("no memory to decode weights");
  }
  planes_.resize(base.size());
  piece_.resize(base.size());
  const size_t size = ZSTD_decompressDCtx(contexts_->decompress, planes_.data(), planes_.size(),
                                          encoded.data(), encoded.size());
  if (ZSTD_isError(size) != 0) {
    return DataLoss("a difference between weights does not decompress to ", base.size(),
                    " bytes: ", ZSTD_getErrorName(size));
  }
  if (size != base.size()) {
    return DataLoss("a difference between weights has ", size, " bytes, not ", base.size());
  }
  const size_t words = base.size() / word_bytes_;
  const size_t whole = words * word_bytes_;
  if (word_bytes_ == 2) {
    JoinWords<uint16_t>(planes_.data(), base.data(), words, piece_.data());
  } else {
    JoinWords<uint32_t>(planes_.data(), base.data(), words, piece_.data());
  }
  std::memcpy(piece_.data() + whole, planes_.data() + whole, base.size() - whole);
  return piece_;
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory to decode weights");
}

}  // namespace freshet
