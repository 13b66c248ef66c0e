#include "rollout/engine/device_weights.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"
#include "weights/word_digest.h"

namespace freshet {

uint64_t DigestOf(const at::Tensor& tensor) {
  constexpr auto kWords = static_cast<int64_t>(kDigestPieceBytes / sizeof(int64_t));
  auto* const data = static_cast<std::byte*>(tensor.mutable_data_ptr());
  const auto size = static_cast<int64_t>(tensor.nbytes());
  const auto whole = size / static_cast<int64_t>(kDigestPieceBytes);
  std::vector<uint64_t> sums;
  if (whole > 0) {
    // Sums of int64 wrap, as those of WordSum do.
    const at::Tensor words =
        at::from_blob(data, {whole, kWords}, tensor.options().dtype(at::kLong));
    const at::Tensor on_host = words.sum(1).cpu();
    const auto* first = reinterpret_cast<const uint64_t*>(on_host.const_data_ptr<int64_t>());
    sums.assign(first, first + whole);
  }
  const int64_t done = whole * static_cast<int64_t>(kDigestPieceBytes);
  if (done < size) {
    const at::Tensor rest =
        at::from_blob(data + done, {size - done}, tensor.options().dtype(at::kByte)).cpu();
    const auto* bytes = reinterpret_cast<const std::byte*>(rest.const_data_ptr<uint8_t>());
    sums.push_back(WordSum({bytes, static_cast<size_t>(size - done)}));
  }
  return DigestOfSums(sums);
}

absl::Status LoadDeviceCopy(const DeviceCopy& copy, const at::Tensor& flat) {
  if (!copy.owner_lives()) {
    return StatusOf(absl::StatusCode::kUnavailable, "the trainer of the copy has ended");
  }
  // from_blob requires a mutable pointer; nothing writes through it.
  void* const data = const_cast<void*>(copy.data);
  flat.copy_(at::from_blob(data, flat.sizes(), flat.options()));
  if (DigestOf(flat) == copy.digest) return absl::OkStatus();
  return DataLoss("the copy on the GPU has other bytes than the version");
}

void CopyWeights(const WeightArena& arena, const at::Tensor& host, const at::Tensor& flat) {
  const std::optional<DeviceCopy>& copy = arena.device_copy();
  if (copy.has_value() && copy->device == flat.device().index() &&
      host.scalar_type() == flat.scalar_type()) {
    const absl::Status loaded = LoadDeviceCopy(*copy, flat);
    if (loaded.ok()) return;
    FRESHET_LOG(Warning) << "event=no_gpu_copy reason=" << LogQuoted(Message(loaded));
  }
  flat.copy_(host);
}

}  // namespace freshet
