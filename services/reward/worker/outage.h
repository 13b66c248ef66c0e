#ifndef FRESHET_SERVICES_REWARD_WORKER_OUTAGE_H_
#define FRESHET_SERVICES_REWARD_WORKER_OUTAGE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

// The outage of a service, if there is one: from the first failed call to the next success. Says
// when to try again. Not thread-safe.
class Outage {
 public:
  // `service`: in the log. The pauses after failures: the first one, doubled up to the longest.
  Outage(std::string service, absl::Duration first_retry, absl::Duration longest_retry)
      : service_(std::move(service)), first_retry_(first_retry), longest_retry_(longest_retry) {}

  // A call that began at `start` failed. Overlapping calls count as one try.
  void OnFailure(const absl::Status& error, absl::Time start, absl::Time now) {
    if (!on()) {
      since_ = start;
      failures_ = 0;
      FRESHET_LOG(Warning) << "event=" << service_ << "_away error=" << LogQuoted(Message(error));
    } else if (start < retry_at_) {
      return;
    }
    reason_ = Message(error);
    retry_at_ = now + BackoffDelay(++failures_, first_retry_, longest_retry_);
  }
  void OnSuccess() { reason_.clear(); }

  bool on() const { return !reason_.empty(); }
  // Of an outage: its last error, when to try again, and both its beginning and its error in words.
  const std::string& reason() const { return reason_; }
  absl::Time retry_at() const { return retry_at_; }
  std::string Describe(absl::Time now) const {
    return StrCat("since ", absl::FormatDuration(absl::Trunc(now - since_, absl::Seconds(1))), ": ",
                  reason_);
  }

 private:
  const std::string service_;
  const absl::Duration first_retry_, longest_retry_;
  std::string reason_;  // empty: no outage
  absl::Time since_;
  int64_t failures_ = 0;  // in a row
  absl::Time retry_at_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_OUTAGE_H_
