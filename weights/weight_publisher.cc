#include "weights/weight_publisher.h"

#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

WeightPublisher::WeightPublisher(std::vector<WeightEntry> entries,
                                 std::vector<std::shared_ptr<WeightTransport>> transports,
                                 std::unique_ptr<WeightStager> stager, WeightSyncObserver* observer,
                                 std::optional<int64_t> bucket_bytes)
    : entries_(std::move(entries)),
      transports_(std::move(transports)),
      stager_(stager != nullptr ? std::move(stager) : std::make_unique<HeapStager>()),
      observer_(observer),
      bucket_bytes_(bucket_bytes) {}

WeightPublisher::~WeightPublisher() { AwaitPublished(); }

absl::Status WeightPublisher::Stage(PolicyVersion policy, int64_t epoch, std::string_view arena,
                                    std::shared_ptr<WeightShards> shards) {
  absl::Time start = SystemClock::Get().Now();
  AwaitPublished();
  if (observer_ != nullptr) {
    observer_->OnPhase(WeightPhase::kWait, SystemClock::Get().Now() - start);
  }
  start = SystemClock::Get().Now();
  staged_ = {};
  shards_ = std::move(shards);
  staged_.manifest.policy = policy;
  staged_.manifest.epoch = epoch;
  staged_.manifest.entries = entries_;
  absl::StatusOr<WeightBytes> bytes = stager_->Stage(
      std::as_bytes(std::span(arena.data(), arena.size())),
      bucket_bytes_.value_or(BucketBytes(static_cast<int64_t>(arena.size()))), staged_.manifest);
  if (absl::IsResourceExhausted(bytes.status())) {
    return ResourceExhausted("version ", policy.version,
                             " cannot be published: ", Message(bytes.status()),
                             "; give the trainer more memory, see the "
                             "published versions of freshet plan");
  }
  FRESHET_RETURN_IF_ERROR(bytes.status());
  staged_.bytes = *std::move(bytes);
  if (observer_ != nullptr) {
    observer_->OnPhase(WeightPhase::kStage, SystemClock::Get().Now() - start);
  }
  return absl::OkStatus();
}

absl::Status WeightPublisher::Publish(const CommitReceipt& receipt,
                                      std::function<void()> published) {
  AwaitPublished();
  if (staged_.bytes == nullptr || staged_.manifest.policy != receipt.policy ||
      staged_.manifest.content_hash != receipt.content_hash) {
    return FailedPrecondition("the staged weights are not those of the receipt for version ",
                              receipt.policy.version);
  }
  publishing_ = std::jthread([this, version = CommittedWeights{staged_, receipt, shards_},
                              published = std::move(published)] {
    holders_ = 0;
    for (const auto& transport : transports_) holders_ += transport->Publish(version);
    published();
  });
  return absl::OkStatus();
}

int64_t WeightPublisher::AwaitPublished() {
  if (publishing_.joinable()) publishing_.join();
  return holders_;
}

}  // namespace freshet
