#ifndef FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_
#define FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "base/policy_version.h"
#include "weights/manifest.h"
#include "weights/weight_stager.h"
#include "weights/weight_sync_observer.h"
#include "weights/weight_transport.h"

namespace freshet {

// The trainer's end of the weight plane. Usage per step: Stage() after the optimizer step gives the
// content hash that CommitStep needs; Publish() with the receipt afterwards.
// Confined to the thread of the trainer loop.
class WeightPublisher {
 public:
  // `stager`: where versions lie; on the heap when null. `observer`, which outlives the publisher,
  // is told how long staging takes.
  WeightPublisher(std::vector<WeightEntry> entries, int64_t bucket_bytes,
                  std::vector<std::shared_ptr<WeightTransport>> transports,
                  std::unique_ptr<WeightStager> stager = nullptr,
                  WeightSyncObserver* observer = nullptr);

  // Copies `arena` and hashes it. The copy reuses memory that no engine holds any more.
  const WeightSnapshot& Stage(PolicyVersion policy, int64_t epoch, std::string_view arena);

  // Sends the staged version to every transport: prepare, then activate with the receipt.
  // Returns the number of engines that hold it. FAILED_PRECONDITION when the receipt is not for
  // the staged version.
  absl::StatusOr<int64_t> Publish(const CommitReceipt& receipt);

  // The staged version, as evaluation pins it.
  const WeightSnapshot& staged() const { return staged_; }

 private:
  const std::vector<WeightEntry> entries_;
  const int64_t bucket_bytes_;
  const std::vector<std::shared_ptr<WeightTransport>> transports_;
  const std::unique_ptr<WeightStager> stager_;
  WeightSyncObserver* const observer_;
  WeightSnapshot staged_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_PUBLISHER_H_
