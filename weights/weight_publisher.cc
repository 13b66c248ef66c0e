#include "weights/weight_publisher.h"

#include <span>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
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

const WeightSnapshot& WeightPublisher::Stage(PolicyVersion policy, int64_t epoch,
                                             std::string_view arena) {
  absl::Time start = SystemClock::Get().Now();
  AwaitPublished();
  if (observer_ != nullptr) {
    observer_->OnPhase(WeightPhase::kWait, SystemClock::Get().Now() - start);
  }
  start = SystemClock::Get().Now();
  staged_ = {};
  staged_.manifest.policy = policy;
  staged_.manifest.epoch = epoch;
  staged_.manifest.entries = entries_;
  absl::StatusOr<WeightBytes> bytes = stager_->Stage(
      std::as_bytes(std::span(arena.data(), arena.size())),
      bucket_bytes_.value_or(BucketBytes(static_cast<int64_t>(arena.size()))), staged_.manifest);
  // The trainer cannot continue without memory for one more copy of the weights.
  if (!bytes.ok()) {
    FRESHET_LOG(Error) << "event=stage_failed error=" << LogQuoted(bytes.status().ToString());
  }
  FRESHET_CHECK(bytes.ok());
  staged_.bytes = *std::move(bytes);
  if (observer_ != nullptr) {
    observer_->OnPhase(WeightPhase::kStage, SystemClock::Get().Now() - start);
  }
  return staged_;
}

absl::Status WeightPublisher::Publish(const CommitReceipt& receipt,
                                      std::function<void()> published) {
  AwaitPublished();
  if (staged_.bytes == nullptr || staged_.manifest.policy != receipt.policy ||
      staged_.manifest.content_hash != receipt.content_hash) {
    return FailedPrecondition("the staged weights are not those of the receipt for version ",
                              receipt.policy.version);
  }
  publishing_ = std::jthread([this, snapshot = staged_, receipt, published = std::move(published)] {
    holders_ = 0;
    for (const auto& transport : transports_) {
      holders_ += transport->Prepare(snapshot.manifest, snapshot.bytes);
    }
    for (const auto& transport : transports_) transport->Activate(receipt);
    published();
  });
  return absl::OkStatus();
}

int64_t WeightPublisher::AwaitPublished() {
  if (publishing_.joinable()) publishing_.join();
  return holders_;
}

}  // namespace freshet
