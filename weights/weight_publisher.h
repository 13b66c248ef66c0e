#ifndef FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_
#define FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/policy_version.h"
#include "weights/manifest.h"
#include "weights/weight_stager.h"
#include "weights/weight_sync_observer.h"
#include "weights/weight_transport.h"

namespace freshet {

// The trainer's end of the weight plane. For each step: Stage() after the optimizer step returns
// the content hash for CommitStep; then Publish() with the receipt. A publication runs beside the
// next step; there is at most one, and staging waits for it, so that the staged and the committed
// version are the only copies. Confined to the trainer loop's thread.
class WeightPublisher {
 public:
  // A null `stager` stages on the heap. `observer` receives staging times; it may be null and must
  // outlive the publisher. Without `bucket_bytes`: BucketBytes of the weights.
  WeightPublisher(std::vector<WeightEntry> entries,
                  std::vector<std::shared_ptr<WeightTransport>> transports,
                  std::unique_ptr<WeightStager> stager = nullptr,
                  WeightSyncObserver* observer = nullptr,
                  std::optional<int64_t> bucket_bytes = std::nullopt);

  ~WeightPublisher();

  // Waits for the publication in flight; then copies `arena` to `staged` and hashes it. Reuses
  // memory that no engine holds. RESOURCE_EXHAUSTED: there is no memory for the copy; nothing is
  // staged. `shards` are those of this arena; they may be null.
  absl::Status Stage(PolicyVersion policy, int64_t epoch, std::string_view arena,
                     std::shared_ptr<WeightShards> shards = nullptr);

  // Starts to publish the staged version with its receipt to every transport, one after the other.
  // `published` is called afterwards on the publishing thread. FAILED_PRECONDITION, with nothing
  // started: the receipt is for another version.
  absl::Status Publish(
      const CommitReceipt& receipt, std::function<void()> published = [] {});

  // Waits for the publication in flight. Returns the number of engines that held the version of the
  // last one; 0 before the first.
  int64_t AwaitPublished();

  // The staged version; without bytes before the first. Evaluations pin it.
  const WeightSnapshot& staged() const { return staged_; }

 private:
  const std::vector<WeightEntry> entries_;
  const std::vector<std::shared_ptr<WeightTransport>> transports_;
  const std::unique_ptr<WeightStager> stager_;
  WeightSyncObserver* const observer_;
  const std::optional<int64_t> bucket_bytes_;
  WeightSnapshot staged_;
  std::shared_ptr<WeightShards> shards_;  // of staged_
  int64_t holders_ = 0;                   // written by the publishing thread
  std::jthread publishing_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_
