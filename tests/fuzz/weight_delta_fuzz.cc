// A difference between weights: the piece has the size of its base, or there is none.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "weights/delta_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  freshet::WeightManifest manifest;
  manifest.entries = {{"all", data[0] % 2 == 0 ? "BF16" : "F32", {}, 0}};
  const std::vector<std::byte> base(size_t{data[1]} * 256 + data[2] + 1, std::byte{3});
  freshet::DeltaCodec codec(manifest);
  const std::string_view encoded(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto piece = codec.Decode(encoded, base);
  if (!piece.ok()) return 0;
  FRESHET_CHECK(piece->size() == base.size());
  // What decodes can be encoded, unless it does not get smaller, and decoded again.
  const std::string first(*piece);
  const auto again = codec.Encode(std::as_bytes(std::span(first)), base);
  if (!again.has_value()) return 0;
  const auto second = codec.Decode(*again, base);
  FRESHET_CHECK(second.ok() && *second == first);
  return 0;
}
