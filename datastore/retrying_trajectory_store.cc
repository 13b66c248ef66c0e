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

}  // namespace freshet
