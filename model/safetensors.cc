#include "model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxRank = 16;
constexpr char kMetadata[] = "__metadata__";

std::string ShortName(const std::string& name) { return JsonExcerpt(Json(name)); }

absl::StatusOr<std::vector<int64_t>> ReadShape(const Json& json) {
  if (!json.is_array()) return InvalidArgument("shape is ", JsonExcerpt(json), ", want a list");
  if (json.size() > kMaxRank) {
    return InvalidArgument("shape has ", json.size(), " dimensions, want at most ", kMaxRank);
  }
  std::vector<int64_t> shape;
  for (const Json& value : json) {
    const bool fits = value.is_number_unsigned() &&
                      value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!fits) return InvalidArgument("shape holds ", JsonExcerpt(value), ", want sizes");
    shape.push_back(value.get<int64_t>());
  }
  return shape;
}

// Reads one header entry. Spans are checked against the file later.
absl::StatusOr<TensorInfo> ReadTensor(const Json& json) {
  if (!json.is_object()) return InvalidArgument("is ", JsonExcerpt(json), ", want an object");
  for (const char* member : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(member)) return InvalidArgument("has no ", member);
  }
  TensorInfo info;
  const Json& dtype = json.at("dtype");
  const auto parsed = dtype.is_string() ? ParseDtype(dtype.get<std::string>()) : std::nullopt;
  if (!parsed) return InvalidArgument("dtype ", JsonExcerpt(dtype), " is not supported");
  info.dtype = *parsed;
  FRESHET_ASSIGN_OR_RETURN(info.shape, ReadShape(json.at("shape")));
  FRESHET_ASSIGN_OR_RETURN(info.bytes, TensorBytes(info.dtype, info.shape));
  const Json& offsets = json.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return InvalidArgument("data_offsets is ", JsonExcerpt(offsets), ", want two offsets");
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (end < begin || end - begin != info.bytes) {
    return InvalidArgument("spans bytes ", begin, " to ", end, ", but ", DtypeName(info.dtype), " ",
                           ShapeToString(info.shape), " needs ", info.bytes);
  }
  info.offset = begin;
  return info;
}

Dtype FileDtype(const TensorToWrite& tensor) {
  return tensor.as_bf16 ? Dtype::kBf16 : tensor.dtype;
}

// Header of a file with `tensors` in this order, padded with spaces to a multiple of 8.
absl::StatusOr<std::string> MakeHeader(const std::vector<const TensorToWrite*>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : tensors) {
    const auto bytes = TensorBytes(tensor->dtype, tensor->shape);
    if (!bytes.ok() || *bytes != tensor->bytes) {
      return InvalidArgument("tensor ", ShortName(tensor->name), " has ", tensor->bytes,
                             " bytes, which is not ", DtypeName(tensor->dtype), " ",
                             ShapeToString(tensor->shape));
    }
    if (tensor->as_bf16 && tensor->dtype != Dtype::kF32) {
      return InvalidArgument("tensor ", ShortName(tensor->name), " is ", DtypeName(tensor->dtype),
                             ": only F32 is rounded to BF16");
    }
    if (tensor->name == kMetadata || header.contains(tensor->name)) {
      return InvalidArgument("tensor name ", ShortName(tensor->name), " is reserved or used twice");
    }
    const uint64_t end = offset + (tensor->as_bf16 ? tensor->bytes / 2 : tensor->bytes);
    header[tensor->name] = {{"dtype", std::string(DtypeName(FileDtype(*tensor)))},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    return InvalidArgument("a tensor name or metadata is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return InvalidArgument("header has ", text.size(), " bytes, want at most ", kMaxHeaderBytes);
  }
  return text;
}

// Rounds in pieces, so that no second copy of a tensor is held.
// `data`: aligned fp32 numbers.
absl::Status WriteRounded(int fd, std::string_view data, const std::string& path) {
  constexpr size_t kPiece = 1 << 18;
  const std::span values(reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float));
  std::vector<uint16_t> rounded;
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    rounded.resize(piece.size());
    std::transform(piece.begin(), piece.end(), rounded.begin(), RoundToBf16);
    FRESHET_RETURN_IF_ERROR(WriteAll(
        fd, {reinterpret_cast<const char*>(rounded.data()), rounded.size() * sizeof(uint16_t)},
        path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> DataOf(const TensorToWrite& tensor) {
  if (!tensor.fetch) return std::string_view(static_cast<const char*>(tensor.data), tensor.bytes);
  FRESHET_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, tensor.fetch());
  if (bytes.size() != tensor.bytes) {
    return Internal("tensor ", ShortName(tensor.name), ": ", bytes.size(), " bytes, not ",
                    tensor.bytes);
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Status WriteTo(int fd, const std::string& path, const std::string& header,
                     const std::vector<const TensorToWrite*>& tensors) {
  char length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFFU);
  }
  FRESHET_RETURN_IF_ERROR(WriteAll(fd, {length, kLengthBytes}, path));
  FRESHET_RETURN_IF_ERROR(WriteAll(fd, header, path));
  for (const TensorToWrite* tensor : tensors) {
    FRESHET_ASSIGN_OR_RETURN(const std::string_view data, DataOf(*tensor));
    FRESHET_RETURN_IF_ERROR(tensor->as_bf16 ? WriteRounded(fd, data, path)
                                            : WriteAll(fd, data, path));
  }
  if (::fsync(fd) != 0) return WriteError(path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> TensorBytes(Dtype dtype, const std::vector<int64_t>& shape) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  uint64_t bytes = DtypeBytes(dtype);
  // One zero makes the product zero, whatever the other dimensions are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) bytes = 0;
  for (const int64_t size : shape) {
    if (size < 0) return InvalidArgument("shape ", ShapeToString(shape), " has a negative size");
    if (bytes != 0 && static_cast<uint64_t>(size) > kMax / bytes) {
      return InvalidArgument("shape ", ShapeToString(shape), " is too large");
    }
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

std::string ShapeToString(const std::vector<int64_t>& shape) {
  return StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path,
                                                                       const DataRoots& roots) {
  FRESHET_ASSIGN_OR_RETURN(const RegularFile opened, roots.OpenFile(path));
  const uint64_t size = opened.size;
  if (size < kLengthBytes) {
    return InvalidArgument(path, ": is truncated: ", size, " bytes, want at least ", kLengthBytes);
  }
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.fd.get(), 0);
  if (map == MAP_FAILED) return NotFound(path, ": cannot be mapped: ", std::strerror(errno));
  std::unique_ptr<SafetensorsFile> file(
      new SafetensorsFile(path, static_cast<const char*>(map), size));
  FRESHET_RETURN_IF_ERROR(file->ReadHeader());
  FRESHET_RETURN_IF_ERROR(file->CheckSpans());
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  // munmap takes the address as mmap gave it.
  ::munmap(const_cast<char*>(map_), size_);
}

absl::Status SafetensorsFile::ReadHeader() {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(map_[i])} << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    return InvalidArgument(path_, ": not a safetensors file: header of ", length,
                           " bytes, want at most ", kMaxHeaderBytes);
  }
  if (length > size_ - kLengthBytes) {
    return InvalidArgument(path_, ": is truncated: ", size_, " bytes, but the header alone needs ",
                           kLengthBytes + length);
  }
  data_begin_ = kLengthBytes + length;
  JsonLimits limits;
  limits.max_depth = 4;
  FRESHET_ASSIGN_OR_RETURN(const Json header,
                           ParseJson({map_ + kLengthBytes, length}, path_, limits));
  if (!header.is_object()) {
    return InvalidArgument(path_, ": header is ", JsonExcerpt(header), ", want an object");
  }
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      if (!value.is_object()) return InvalidArgument(path_, ": __metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return InvalidArgument(path_, ": __metadata__ ", ShortName(key), " is not a string");
        }
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<TensorInfo> info = ReadTensor(value);
    if (!info.ok()) {
      return InvalidArgument(path_, ": tensor ", ShortName(name), ": ", Message(info.status()));
    }
    tensors_.emplace(name, *std::move(info));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::CheckSpans() const {
  std::vector<std::pair<const TensorInfo*, const std::string*>> order;
  for (const auto& [name, info] : tensors_) order.emplace_back(&info, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->offset, a.first->bytes) < std::pair(b.first->offset, b.first->bytes);
  });
  uint64_t end = 0;
  for (const auto& [info, name] : order) {
    if (info->offset != end) {
      return InvalidArgument(path_, ": tensor ", ShortName(*name), " starts at byte ", info->offset,
                             info->offset < end ? ", inside of another one that ends at "
                                                : ", leaving a gap after byte ",
                             end);
    }
    end += info->bytes;  // cannot overflow: equals data_offsets[1]
  }
  const uint64_t data_bytes = size_ - data_begin_;
  if (data_bytes < end) {
    return InvalidArgument(path_, ": is truncated: ", size_, " bytes, but its header needs ",
                           data_begin_ + end);
  }
  if (data_bytes > end) {
    return InvalidArgument(path_, ": has ", data_bytes - end, " bytes after the last tensor");
  }
  return absl::OkStatus();
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : tensors_) names.push_back(name);
  return names;
}

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::string_view SafetensorsFile::Data(const TensorInfo& info) const {
  return {map_ + data_begin_ + info.offset, info.bytes};
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorToWrite*> order;
  order.reserve(tensors.size());
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return DtypeBytes(FileDtype(*a)) > DtypeBytes(FileDtype(*b));
  });
  absl::StatusOr<std::string> header = MakeHeader(order, metadata);
  if (!header.ok()) return InvalidArgument(path, ": ", Message(header.status()));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) return WriteError(path, errno);
  absl::Status status = WriteTo(fd.get(), path, *header, order);
  struct stat info {};
  // Do not unlink devices.
  if (!status.ok() && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode)) {
    ::unlink(path.c_str());
  }
  return status;
}

}  // namespace freshet
