#ifndef FRESHET_TRAINER_RANKS_RANK_STATES_H_
#define FRESHET_TRAINER_RANKS_RANK_STATES_H_

#include <algorithm>
#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "collective/communicator.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "trainer/ranks/rank_links.h"

namespace freshet {

// What is known of a group's ranks, from their listeners. A loss aborts the communicators.
// Thread-safe.
class RankStates {
 public:
  explicit RankStates(const std::vector<RankLink>& links) : reports_(links.size()) {
    for (size_t i = 0; i < links.size(); ++i) reports_[i].set_rank(links[i].number);
  }

  void Report(size_t link, const trainer::v1::RankReport& report) {
    const MutexLock lock(mu_);
    const int number = reports_[link].rank();
    reports_[link] = report;
    reports_[link].set_rank(number);
    reports_[link].set_phase(ValidUtf8(report.phase(), kMaxTextBytes));
    reports_[link].set_last_collective(ValidUtf8(report.last_collective(), kMaxTextBytes));
    changed_.NotifyAll();
  }
  void Lose(size_t link, const std::string& reason) {
    const MutexLock lock(mu_);
    reports_[link].set_state(trainer::v1::RankReport::STATE_FAILED);
    if (reason_.empty()) reason_ = reason;
    connecting_.request_stop();
    for (Communicator* communicator : communicators_) communicator->Abort(reason_);
    changed_.NotifyAll();
  }
  // Stops with the first loss.
  std::stop_token connecting() const { return connecting_.get_token(); }
  void Attach(Communicator& communicator) {
    const MutexLock lock(mu_);
    communicators_.push_back(&communicator);
    if (!reason_.empty()) communicator.Abort(reason_);
  }
  void Detach() {
    const MutexLock lock(mu_);
    communicators_.clear();
  }
  std::vector<trainer::v1::RankReport> reports() const {
    const MutexLock lock(mu_);
    return reports_;
  }

  // OK once all ranks are about to connect.
  absl::Status AwaitJoining(absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    const MutexLock lock(mu_);
    while (reason_.empty()) {
      const auto starting =
          std::ranges::find_if(reports_, [](const trainer::v1::RankReport& report) {
            return report.state() != trainer::v1::RankReport::STATE_JOINING;
          });
      if (starting == reports_.end()) return absl::OkStatus();
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return StatusOf(absl::StatusCode::kUnavailable, "rank ", starting->rank(),
                        " has not started in ", absl::FormatDuration(timeout));
      }
      changed_.WaitFor(mu_, left);
    }
    return absl::UnavailableError(reason_);
  }
  std::string AwaitReason(absl::Duration patience) {
    const absl::Time deadline = absl::Now() + patience;
    const MutexLock lock(mu_);
    while (reason_.empty()) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mu_, left);
    }
    return reason_;
  }

 private:
  std::stop_source connecting_;
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<trainer::v1::RankReport> reports_ ABSL_GUARDED_BY(mu_);
  std::string reason_ ABSL_GUARDED_BY(mu_);  // of the first loss
  std::vector<Communicator*> communicators_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RANK_STATES_H_
