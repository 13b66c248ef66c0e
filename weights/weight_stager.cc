#include "weights/weight_stager.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace freshet {

absl::StatusOr<WeightBytes> HeapStager::Stage(std::span<const std::byte> source,
                                              int64_t bucket_bytes, WeightManifest& manifest) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<WeightBuffer> buffer, pool_.Get(source.size()));
  HashBuckets(source, bucket_bytes, manifest, buffer->data.get());
  return Freeze(std::move(buffer));
}

}  // namespace freshet
