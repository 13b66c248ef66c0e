#include "weights/grpc/chunk_codec.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr uint8_t kChunkTag = 2 << 3 | 2;   // chunk = 2, length-delimited
constexpr uint8_t kOffsetTag = 1 << 3 | 0;  // offset = 1, varint
constexpr uint8_t kDataTag = 2 << 3 | 2;    // data = 2, length-delimited
// Three tags and three varints of up to 10 bytes.
constexpr size_t kMaxPrefixBytes = 33;

void PutVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Reads varints from a short array.
class PrefixReader {
 public:
  explicit PrefixReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t position() const { return position_; }
  bool Take(uint8_t tag) {
    if (position_ >= bytes_.size() || bytes_[position_] != tag) return false;
    ++position_;
    return true;
  }
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && position_ < bytes_.size(); shift += 7) {
      const uint8_t byte = bytes_[position_++];
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

 private:
  const std::span<const uint8_t> bytes_;
  size_t position_ = 0;
};

struct Prefix {
  int64_t offset = 0;
  size_t size = 0;  // of the prefix; the rest is data
};

// Parses the prefix of a chunk of `total` bytes as EncodeChunk writes it.
std::optional<Prefix> ReadPrefix(std::span<const uint8_t> bytes, size_t total) {
  PrefixReader reader(bytes);
  if (!reader.Take(kChunkTag)) return std::nullopt;
  const std::optional<uint64_t> chunk_bytes = reader.Varint();
  if (!chunk_bytes.has_value() || *chunk_bytes != total - reader.position()) return std::nullopt;
  if (!reader.Take(kOffsetTag)) return std::nullopt;
  const std::optional<uint64_t> offset = reader.Varint();
  if (!offset.has_value() || !reader.Take(kDataTag)) return std::nullopt;
  const std::optional<uint64_t> data_bytes = reader.Varint();
  if (!data_bytes.has_value() || *data_bytes != total - reader.position()) return std::nullopt;
  return Prefix{static_cast<int64_t>(*offset), reader.position()};
}

absl::Status CheckChunkBytes(size_t size) {
  if (size > static_cast<size_t>(kMaxChunkBytes)) {
    return InvalidArgument("chunk of ", size, " bytes, at most ", kMaxChunkBytes);
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ByteBuffer EncodeChunk(const WeightBytes& bytes, int64_t offset, int64_t size) {
  std::string body;
  body.push_back(static_cast<char>(kOffsetTag));
  PutVarint(static_cast<uint64_t>(offset), body);
  body.push_back(static_cast<char>(kDataTag));
  PutVarint(static_cast<uint64_t>(size), body);
  std::string prefix;
  prefix.push_back(static_cast<char>(kChunkTag));
  PutVarint(body.size() + static_cast<uint64_t>(size), prefix);
  prefix += body;
  // gRPC requires a mutable pointer but does not write to it.
  void* data = const_cast<std::byte*>(bytes->data() + offset);
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(prefix),
      grpc::Slice(
          data, static_cast<size_t>(size),
          [](void* owner) { delete static_cast<WeightBytes*>(owner); }, new WeightBytes(bytes))};
  return {slices.data(), slices.size()};
}

absl::StatusOr<bool> AppendEncodedChunk(const grpc::ByteBuffer& message,
                                        WeightReception& reception) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return InvalidArgument("unreadable message");
  std::array<uint8_t, kMaxPrefixBytes> head{};
  size_t filled = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t n = std::min(slice.size(), head.size() - filled);
    std::copy_n(slice.begin(), n, head.begin() + static_cast<ptrdiff_t>(filled));
    filled += n;
    if (filled == head.size()) break;
  }
  const size_t total = message.Length();
  const std::optional<Prefix> prefix = ReadPrefix({head.data(), filled}, total);
  if (!prefix.has_value()) return false;
  FRESHET_RETURN_IF_ERROR(CheckChunkBytes(total - prefix->size));
  int64_t offset = prefix->offset;
  size_t skip = prefix->size;
  for (const grpc::Slice& slice : slices) {
    const size_t skipped = std::min(skip, slice.size());
    skip -= skipped;
    const std::string_view piece(reinterpret_cast<const char*>(slice.begin()) + skipped,
                                 slice.size() - skipped);
    if (piece.empty()) continue;
    FRESHET_RETURN_IF_ERROR(reception.Append(offset, piece));
    offset += static_cast<int64_t>(piece.size());
  }
  return true;
}

absl::Status AppendChunk(int64_t offset, std::string_view data, WeightReception& reception) {
  FRESHET_RETURN_IF_ERROR(CheckChunkBytes(data.size()));
  return reception.Append(offset, data);
}

}  // namespace freshet
