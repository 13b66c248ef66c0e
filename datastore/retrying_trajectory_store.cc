#include "datastore/retrying_trajectory_store.h"

#include "base/backoff.h"

namespace freshet {
namespace {

// PERMISSION_DENIED may be a password change in progress.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kPermissionDenied;
}

}  // namespace

bool RetryingTrajectoryStore::AwaitRetry(const absl::Status& status, Tries& tries) {
  if (!MayPass(status.code())) return false;
  if (clock_.Now() - tries.start >= options_.outage_limit) return false;
  if (tries.failed == 0 && options_.on_outage) options_.on_outage(status);
  {
    MutexLock lock(mu_);
    if (closed_) return false;
    closed_changed_.WaitFor(
        mu_, BackoffDelay(++tries.failed, options_.first_backoff, options_.max_backoff));
    if (closed_) return false;
  }
  retries_.fetch_add(1);
  return true;
}

void RetryingTrajectoryStore::Close() {
  {
    MutexLock lock(mu_);
    closed_ = true;
    closed_changed_.NotifyAll();
  }
  store_.Close();
}

absl::StatusOr<std::unique_ptr<TrajectoryStore>> OpenWithRetries(
    const std::function<absl::StatusOr<std::unique_ptr<TrajectoryStore>>()>& open,
    const Clock& clock, const RetryOptions& options, const std::stop_token& stop) {
  const absl::Time start = clock.Now();
  Notification stopped;
  const std::stop_callback on_stop(stop, [&stopped] { stopped.Notify(); });
  for (int64_t failed = 1;; ++failed) {
    absl::StatusOr<std::unique_ptr<TrajectoryStore>> store = open();
    if (store.ok() || !MayPass(store.status().code())) return store;
    if (clock.Now() - start >= options.outage_limit) return store;
    if (failed == 1 && options.on_outage) options.on_outage(store.status());
    if (stopped.WaitFor(BackoffDelay(failed, options.first_backoff, options.max_backoff))) {
      return absl::CancelledError("stopped while the datastore was away");
    }
  }
}

}  // namespace freshet
