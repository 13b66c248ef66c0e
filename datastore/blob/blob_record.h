#ifndef FRESHET_DATASTORE_BLOB_BLOB_RECORD_H_
#define FRESHET_DATASTORE_BLOB_BLOB_RECORD_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

static_assert(std::endian::native == std::endian::little, "records are copied as they lie");

enum class BlobKind : uint8_t { kResponse = 1, kPrompt = 2, kScore = 3, kCuration = 4 };

// Writes one record: header, content, checksum. Confined to one thread at a time.
class BlobWriter {
 public:
  // `size_hint`: approximate content size in bytes. The record is appended to `before`.
  BlobWriter(BlobKind kind, size_t size_hint, std::string before = {}, uint8_t version = 1);

  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) { Append(&value, sizeof(value)); }
  // Writes the values without their count.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void PutColumn(const std::vector<T>& values) { Append(values.data(), values.size() * sizeof(T)); }
  void PutText(std::string_view text) { Append(text.data(), text.size()); }

  // Appends the checksum. Returns `before` followed by the record.
  std::string Finish() &&;

 private:
  void Append(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }

  std::string bytes_;
  const size_t begin_;
};

// Reads one record. After a failed read, later reads return zeros and empty values and Finish
// returns the reason, so a decoder needs only one check at the end. Column and Text check sizes
// before allocating. Confined to one thread at a time.
class BlobReader {
 public:
  // DATA_LOSS: too short, wrong checksum, version outside [1, newest], or another kind.
  static absl::StatusOr<BlobReader> Open(BlobKind kind, std::string_view blob, uint8_t newest = 1);
  uint8_t version() const { return version_; }

  template <typename T>
  requires std::is_arithmetic_v<T> T Get() {
    T value{};
    if (const char* from = Take(sizeof(T)); from != nullptr) std::memcpy(&value, from, sizeof(T));
    return value;
  }
  // Reads a uint32 count. Fails the record if it exceeds `limit`.
  int64_t GetCount(int64_t limit);
  // Reads `count` values. Allocates only if the record has that many.
  template <typename T>
  requires std::is_arithmetic_v<T> std::vector<T> GetColumn(int64_t count) {
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    const char* from = Take(size);
    if (from == nullptr || count == 0) return {};
    std::vector<T> values(static_cast<size_t>(count));
    std::memcpy(values.data(), from, size);
    return values;
  }
  std::string_view GetText(int64_t size);
  // Whether `count` parts of at least `size` bytes each can follow; otherwise fails the record.
  bool Expect(int64_t count, int64_t size);
  // Marks the record as bad.
  void Fail(const char* why);
  bool ok() const { return why_ == nullptr; }

  // DATA_LOSS: a read failed, or unread bytes remain.
  absl::Status Finish() const;

 private:
  explicit BlobReader(std::string_view content) : left_(content) {}
  // Consumes `size` bytes, or returns null.
  const char* Take(size_t size);

  std::string_view left_;
  uint8_t version_ = 0;
  const char* why_ = nullptr;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_BLOB_BLOB_RECORD_H_
