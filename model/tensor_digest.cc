#include "model/tensor_digest.h"

#include <cstddef>
#include <vector>

#include "base/word_digest.h"

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

}  // namespace freshet
