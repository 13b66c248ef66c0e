#ifndef FRESHET_SERVICES_REWARD_WORKER_LEASE_AHEAD_H_
#define FRESHET_SERVICES_REWARD_WORKER_LEASE_AHEAD_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace freshet {

// Decides how many rows each thread of a worker has leased: as many as take `batch_time`, estimated
// from the times of past rows, at most `batch_rows`. Starts with 1 row and at most doubles whenever
// rows have been measured. Not thread-safe.
class LeaseAhead {
 public:
  LeaseAhead(absl::Duration batch_time, int64_t batch_rows)
      : batch_time_(batch_time), batch_rows_(batch_rows) {}

  // A row took this long.
  void OnRow(absl::Duration time) {
    // Rises at once with a slow row, and falls slowly.
    row_time_ = std::max(time, 0.9 * row_time_ + 0.1 * time);
    measured_ = true;
  }

  int64_t RowsPerThread() {
    if (std::exchange(measured_, false)) {
      const double affordable = row_time_ <= absl::ZeroDuration()
                                    ? static_cast<double>(batch_rows_)
                                    : absl::FDivDuration(batch_time_, row_time_);
      const int64_t most = std::max<int64_t>(std::min(batch_rows_, 2 * rows_), 1);
      rows_ = static_cast<int64_t>(std::clamp(affordable, 1.0, static_cast<double>(most)));
    }
    return rows_;
  }

 private:
  const absl::Duration batch_time_;
  const int64_t batch_rows_;
  int64_t rows_ = 1;
  bool measured_ = false;
  absl::Duration row_time_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_LEASE_AHEAD_H_
