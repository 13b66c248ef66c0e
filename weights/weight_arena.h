#ifndef FRESHET_WEIGHTS_WEIGHT_ARENA_H_
#define FRESHET_WEIGHTS_WEIGHT_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace freshet {

// Bytes [first, first + size) of an arena.
struct ByteRange {
  int64_t first = 0;
  int64_t size = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The copy of an arena in a GPU's memory that another process, its owner, has written. It is not
// verified: copy it, compare the digest of what was copied, and take the arena's bytes if it
// differs.
struct DeviceCopy {
  const void* data = nullptr;  // address on the GPU
  int device = 0;              // CUDA's number of the GPU in this process
  uint64_t digest = 0;         // WordDigest of the arena
  // False: the owner has ended, and the memory must not be read.
  std::function<bool()> owner_lives;
};

// Bytes of one version, on the heap or in memory shared between processes. Immutable. Thread-safe.
class WeightArena {
 public:
  // `owner` keeps [data, data + size) alive and unchanged. `shared_fd`: the memory file that
  // starts with these bytes, kept open by `owner`; -1 if the bytes are private or another process's
  // file. `device_copy`: kept open by `owner`.
  WeightArena(const std::byte* data, size_t size, std::shared_ptr<const void> owner,
              int shared_fd = -1, std::optional<DeviceCopy> device_copy = std::nullopt)
      : data_(data),
        size_(size),
        owner_(std::move(owner)),
        shared_fd_(shared_fd),
        device_copy_(std::move(device_copy)) {}

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::byte* begin() const { return data_; }
  const std::byte* end() const { return data_ + size_; }
  int shared_fd() const { return shared_fd_; }
  const std::optional<DeviceCopy>& device_copy() const { return device_copy_; }

  friend bool operator==(const WeightArena& a, const WeightArena& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  const std::byte* const data_;
  const size_t size_;
  const std::shared_ptr<const void> owner_;
  const int shared_fd_;
  const std::optional<DeviceCopy> device_copy_;
};

// Shared ownership of a version's bytes; immutable once published.
using WeightBytes = std::shared_ptr<const WeightArena>;

inline WeightBytes MakeWeightBytes(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::byte* data = owner->data();
  const size_t size = owner->size();
  return std::make_shared<const WeightArena>(data, size, std::move(owner));
}

inline WeightBytes CopyWeightBytes(std::string_view bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return MakeWeightBytes({begin, begin + bytes.size()});
}

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_ARENA_H_
