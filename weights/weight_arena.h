#ifndef FRESHET_WEIGHTS_WEIGHT_ARENA_H_
#define FRESHET_WEIGHTS_WEIGHT_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace freshet {

// Bytes of one version, on the heap or in memory shared between processes. Immutable. Thread-safe.
class WeightArena {
 public:
  // `owner` keeps [data, data + size) alive and unchanged. `shared_fd`: the memory file that
  // starts with these bytes, kept open by `owner`; -1 if the bytes are private or another process's
  // file.
  WeightArena(const std::byte* data, size_t size, std::shared_ptr<const void> owner,
              int shared_fd = -1)
      : data_(data), size_(size), owner_(std::move(owner)), shared_fd_(shared_fd) {}

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::byte* begin() const { return data_; }
  const std::byte* end() const { return data_ + size_; }
  int shared_fd() const { return shared_fd_; }

  friend bool operator==(const WeightArena& a, const WeightArena& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  const std::byte* const data_;
  const size_t size_;
  const std::shared_ptr<const void> owner_;
  const int shared_fd_;
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
