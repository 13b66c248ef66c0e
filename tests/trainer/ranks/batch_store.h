#ifndef FRESHET_TESTS_TRAINER_RANKS_BATCH_STORE_H_
#define FRESHET_TESTS_TRAINER_RANKS_BATCH_STORE_H_

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/testing/fake_trajectory_store.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {

// The batch that stores of a job hold. Thread-safe.
class StoredBatch {
 public:
  explicit StoredBatch(const std::vector<TrainGroup>& groups = {}) { Set(groups); }

  void Set(const std::vector<TrainGroup>& groups) {
    const MutexLock lock(mu_);
    samples_.clear();
    for (const TrainGroup& group : groups) {
      for (const TrainSample& sample : group.samples) {
        samples_[sample.sample.key] = sample.sample;
        samples_[sample.sample.key].score = nullptr;
      }
    }
  }
  // The next reads return these errors.
  void Fail(std::deque<absl::Status> errors) {
    const MutexLock lock(mu_);
    errors_ = std::move(errors);
  }
  std::vector<SampleKey> read() const {
    const MutexLock lock(mu_);
    return read_;
  }

  absl::StatusOr<std::vector<SampleView>> Read(const std::vector<SampleKey>& keys) {
    const MutexLock lock(mu_);
    if (!errors_.empty()) {
      const absl::Status error = errors_.front();
      errors_.pop_front();
      return error;
    }
    std::vector<SampleView> views;
    for (const SampleKey& key : keys) {
      if (!samples_.contains(key)) return NotFound("group ", key.ordinal);
      views.push_back(samples_.at(key));
      read_.push_back(key);
    }
    return views;
  }

 private:
  mutable Mutex mu_;
  std::map<SampleKey, SampleView> samples_ ABSL_GUARDED_BY(mu_);
  std::vector<SampleKey> read_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> errors_ ABSL_GUARDED_BY(mu_);
};

// A store that only reads a StoredBatch.
class BatchStore final : public ForwardingTrajectoryStore {
 public:
  explicit BatchStore(std::shared_ptr<StoredBatch> batch)
      : ForwardingTrajectoryStore(Nothing()), batch_(std::move(batch)) {}
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys) override {
    return batch_->Read(keys);
  }

 private:
  static TrajectoryStore& Nothing() {
    static FakeTrajectoryStore store{StoreOptions{}};
    return store;
  }
  const std::shared_ptr<StoredBatch> batch_;
};

inline StoreOpener OpensBatch(std::shared_ptr<StoredBatch> batch) {
  return [batch = std::move(batch)](const std::string&) {
    return std::make_unique<BatchStore>(batch);
  };
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_RANKS_BATCH_STORE_H_
