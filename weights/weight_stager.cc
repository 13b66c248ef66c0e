#include "weights/weight_stager.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace freshet {

absl::StatusOr<WeightBytes> HeapStager::Stage(std::span<const std::byte> source,
                                              int64_t bucket_bytes, WeightManifest& manifest) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<WeightBuffer> buffer, pool_.Get(source.size()));
  std::byte* to = buffer->data.get();
  HashBuckets(source, bucket_bytes, manifest, [&to](std::span<const std::byte> bucket) {
    std::memcpy(to, bucket.data(), bucket.size());
    to += bucket.size();
  });
  return Freeze(std::move(buffer));
}

}  // namespace freshet
