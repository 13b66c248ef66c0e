#ifndef FRESHET_TRAINER_RANKS_STORED_SAMPLES_H_
#define FRESHET_TRAINER_RANKS_STORED_SAMPLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "datastore/trajectory_store.h"

namespace freshet {

inline constexpr absl::Duration kStoreRetryDelay = absl::Seconds(30);

// A rank's view of its job's store: reads the samples of its work, each once in a step. It tries
// once, because rank 0 has the samples too. Not thread-safe.
class StoredSamples {
 public:
  // The store is opened by the first Read, or by a later one if that fails. `clock` must outlive
  // it.
  StoredSamples(StoreOpener open, std::string job, const Clock& clock);

  // Errors of the opener and of TrajectoryStore::ReadSamples; after UNAVAILABLE or
  // PERMISSION_DENIED the same one within kStoreRetryDelay, without a try. DATA_LOSS: there is no
  // opener.
  absl::StatusOr<std::vector<SampleView>> Read(int64_t step, const std::vector<SampleKey>& keys);

 private:
  absl::Status Fetch(const std::vector<SampleKey>& keys);

  const StoreOpener open_;
  const std::string job_;
  const Clock& clock_;
  std::unique_ptr<TrajectoryStore> store_;
  absl::Status last_error_;
  absl::Time tries_again_ = absl::InfinitePast();
  int64_t step_ = -1;
  std::map<SampleKey, SampleView> samples_;  // of step_
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_STORED_SAMPLES_H_
