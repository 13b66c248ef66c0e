#ifndef FRESHET_MODEL_SAFETENSORS_H_
#define FRESHET_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "model/dtype.h"

namespace freshet {

// A tensor in a file: row-major, little-endian.
struct TensorInfo {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
  uint64_t offset = 0;         // bytes from the start of the data section
  uint64_t bytes = 0;          // product of the shape times the element size
};

// A safetensors file, mapped read-only. Format: 8-byte little-endian header length, header (JSON:
// name -> dtype, shape, data_offsets; __metadata__), data. Do not truncate the file while it is
// open: reading a missing page kills the process. Thread-safe.
class SafetensorsFile {
 public:
  // Checks the header: at most 100 MiB, no duplicate names, known dtypes, spans that match shape
  // times element size and cover the data section without gaps or overlaps.
  // Returns:
  //   NOT_FOUND: the file does not exist or cannot be read.
  //   INVALID_ARGUMENT: invalid file; for a truncated one the message has the sizes.
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(
      const std::string& path, const DataRoots& roots = DataRoots::Unlimited());

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // In alphabetical order.
  std::vector<std::string> names() const;
  // Null if there is none. Valid as long as this object.
  const TensorInfo* Find(std::string_view name) const;
  // Bytes of a tensor in this file. May be unaligned: use memcpy. Valid as long as this object.
  std::string_view Data(const TensorInfo& info) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(std::string path, const char* map, uint64_t size)
      : path_(std::move(path)), map_(map), size_(size) {}
  absl::Status ReadHeader();
  absl::Status CheckSpans() const;

  const std::string path_;
  const char* const map_;
  const uint64_t size_;
  uint64_t data_begin_ = 0;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Returns a tensor's bytes, valid until the next call for any tensor.
using TensorFetch = std::function<absl::StatusOr<std::span<const std::byte>>()>;

// A tensor to write. The caller owns `data`, which has `bytes` bytes.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t bytes = 0;
  bool as_bf16 = false;         // aligned fp32 data only: rounded to bf16 in the file
  TensorFetch fetch = nullptr;  // if set, called for the bytes when they are written, not `data`
};

// Creates or replaces `path`, streams the tensors to it and fsyncs it. Not atomic: write into a
// directory that is renamed afterwards. The data starts at a multiple of 8 with the widest elements
// first, so that all tensors are aligned. Removes the partial file on error.
// Returns:
//   INVALID_ARGUMENT: a duplicate or reserved name, bytes that do not match shape times element
//     size, or `as_bf16` of data that is not fp32.
//   RESOURCE_EXHAUSTED: disk full. FAILED_PRECONDITION: other write errors. Errors of `fetch`;
//     INTERNAL: it returns another number of bytes.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Product of `shape` times the element size. INVALID_ARGUMENT: a negative dimension, or a product
// above 2^63 - 1.
absl::StatusOr<uint64_t> TensorBytes(Dtype dtype, const std::vector<int64_t>& shape);

// "[512, 64]"
std::string ShapeToString(const std::vector<int64_t>& shape);

}  // namespace freshet

#endif  // FRESHET_MODEL_SAFETENSORS_H_
