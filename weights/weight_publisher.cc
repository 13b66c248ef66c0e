#include "weights/weight_publisher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/base/str_cat.h"

namespace freshet {

std::shared_ptr<std::vector<std::byte>> WeightPublisher::FreeBuffer(size_t size) {
  for (auto& buffer : buffers_) {
    if (buffer.use_count() == 1 && buffer->size() == size) return buffer;
  }
  // Buffers still held by engines come back when the engines let go; the rest are dropped here, so
  // there are at most as many as versions in use.
  std::erase_if(buffers_, [](const auto& buffer) { return buffer.use_count() == 1; });
  buffers_.push_back(std::make_shared<std::vector<std::byte>>(size));
  return buffers_.back();
}

const WeightSnapshot& WeightPublisher::Stage(PolicyVersion policy, int64_t epoch,
                                             std::string_view arena) {
  staged_ = {};
  auto buffer = FreeBuffer(arena.size());
  std::memcpy(buffer->data(), arena.data(), arena.size());
  staged_.manifest.policy = policy;
  staged_.manifest.epoch = epoch;
  staged_.manifest.entries = entries_;
  HashBuckets(*buffer, bucket_bytes_, staged_.manifest);
  staged_.bytes = std::move(buffer);
  return staged_;
}

absl::StatusOr<int64_t> WeightPublisher::Publish(const CommitReceipt& receipt) {
  if (staged_.bytes == nullptr || staged_.manifest.policy != receipt.policy ||
      staged_.manifest.content_hash != receipt.content_hash) {
    return FailedPrecondition("the staged weights are not those of the receipt for version ",
                              receipt.policy.version);
  }
  int64_t holders = 0;
  for (const auto& transport : transports_) {
    holders += transport->Prepare(staged_.manifest, staged_.bytes);
  }
  for (const auto& transport : transports_) transport->Activate(receipt);
  return holders;
}

}  // namespace freshet
