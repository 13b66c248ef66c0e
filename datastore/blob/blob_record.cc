#include "datastore/blob/blob_record.h"

#include <algorithm>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kHeaderBytes = 2;
constexpr size_t kChecksumBytes = sizeof(uint64_t);

}  // namespace

BlobWriter::BlobWriter(BlobKind kind, size_t size_hint, std::string before, uint8_t version)
    : bytes_(std::move(before)), begin_(bytes_.size()) {
  const size_t size = begin_ + kHeaderBytes + size_hint + kChecksumBytes;
  if (size > bytes_.capacity()) bytes_.reserve(std::max(size, 2 * bytes_.capacity()));
  Put(version);
  Put(static_cast<uint8_t>(kind));
}

std::string BlobWriter::Finish() && {
  Put(Xxh3(bytes_.data() + begin_, bytes_.size() - begin_));
  return std::move(bytes_);
}

absl::StatusOr<BlobReader> BlobReader::Open(BlobKind kind, std::string_view blob, uint8_t newest) {
  if (blob.size() < kHeaderBytes + kChecksumBytes) {
    return DataLoss("record of ", blob.size(), " bytes is shorter than its header");
  }
  const std::string_view content = blob.substr(0, blob.size() - kChecksumBytes);
  uint64_t checksum = 0;
  std::memcpy(&checksum, blob.data() + content.size(), kChecksumBytes);
  const uint64_t actual = Xxh3(content.data(), content.size());
  if (checksum != actual) {
    return DataLoss("record of ", blob.size(), " bytes has checksum ", Hex64(actual),
                    " instead of ", Hex64(checksum));
  }
  BlobReader reader(content);
  reader.version_ = reader.Get<uint8_t>();
  const auto found = reader.Get<uint8_t>();
  if (reader.version_ < 1 || reader.version_ > newest) {
    return DataLoss("record has format version ", int{reader.version_}, ", known are 1 to ",
                    int{newest});
  }
  if (found != static_cast<uint8_t>(kind)) {
    return DataLoss("record is of kind ", int{found}, " instead of ", static_cast<int>(kind));
  }
  return reader;
}

const char* BlobReader::Take(size_t size) {
  if (why_ == nullptr && size > left_.size()) why_ = "it ends too early";
  if (why_ != nullptr) return nullptr;
  const char* from = left_.data();
  left_.remove_prefix(size);
  return from;
}

int64_t BlobReader::GetCount(int64_t limit) {
  const int64_t count = Get<uint32_t>();
  if (count <= limit) return count;
  Fail("a count is above its limit");
  return 0;
}

std::string_view BlobReader::GetText(int64_t size) {
  const char* from = Take(static_cast<size_t>(size));
  if (from == nullptr) return {};
  return {from, static_cast<size_t>(size)};
}

bool BlobReader::Expect(int64_t count, int64_t size) {
  if (ok() && count > static_cast<int64_t>(left_.size()) / size) Fail("it ends too early");
  return ok();
}

void BlobReader::Fail(const char* why) {
  if (why_ == nullptr) why_ = why;
}

absl::Status BlobReader::Finish() const {
  if (why_ != nullptr) return DataLoss("record cannot be read: ", why_);
  if (!left_.empty()) return DataLoss("record has ", left_.size(), " bytes too many");
  return absl::OkStatus();
}

}  // namespace freshet
