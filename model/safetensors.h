#ifndef FRESHET_MODEL_SAFETENSORS_H_
#define FRESHET_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "model/dtype.h"

namespace freshet {

// Place and meaning of one tensor in a file: row-major, little-endian.
struct TensorInfo {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t offset = 0;         // bytes from the start of the file's data section
  uint64_t bytes = 0;          // product of the shape times the element's size
};

// A safetensors file, mapped read-only. Format: 8 bytes little-endian length of the header, the
// header (JSON: name -> dtype, shape, data_offsets; __metadata__), then the data.
// The file must not be cut while it is open: reading a page that is gone ends the process.
// Thread-safe.
class SafetensorsFile {
 public:
  // Checks the whole header: at most 100 MiB, no name twice, known dtypes, spans that equal shape
  // times element size and cover the data section without gap or overlap.
  // Returns:
  //   NOT_FOUND: no such file, or it cannot be read.
  //   INVALID_ARGUMENT: not a valid file; a truncated one is named with its sizes.
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(
      const std::string& path, const DataRoots& roots = DataRoots::Unlimited());

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // In alphabetical order.
  std::vector<std::string> names() const;
  // Null when there is none of that name. Lives as long as this object.
  const TensorInfo* Find(std::string_view name) const;
  // Bytes of a tensor of this file. Not aligned to the element when the header is not: copy with
  // memcpy. Lives as long as this object.
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

// A tensor to be written; `data` stays with the caller and holds `bytes` bytes.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t bytes = 0;
};

// Creates or replaces the file `path` (not atomically: write into a directory that is renamed),
// streaming the tensors to it, and fsyncs it. The data starts at a multiple of 8 and lies with the
// widest elements first, so that every tensor is aligned. On an error the partial file is removed.
// Returns:
//   INVALID_ARGUMENT: a name twice or reserved, or bytes that differ from shape times element size.
//   RESOURCE_EXHAUSTED: the disk is full. FAILED_PRECONDITION: it cannot be written otherwise.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Product of `shape` times the element's size; INVALID_ARGUMENT for a negative dimension or a
// product above 2^63 - 1.
absl::StatusOr<uint64_t> TensorBytes(Dtype dtype, const std::vector<int64_t>& shape);

// "[512, 64]"
std::string ShapeToString(const std::vector<int64_t>& shape);

}  // namespace freshet

#endif  // FRESHET_MODEL_SAFETENSORS_H_
