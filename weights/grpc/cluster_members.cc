#include "weights/grpc/cluster_members.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "base/transient.h"

namespace freshet {
namespace {

// Poll interval of the idle catch-up thread, which every change also wakes.
constexpr absl::Duration kIdleLook = absl::Seconds(60);
// Limit of Member::max_cancelled, which doubles each time that a publication has to serve the
// member.
constexpr int kLastMaxCancelled = 1 << 20;

// Whether the member may recover soon: it was not reachable or too slow.
bool Unreachable(const absl::Status& status) {
  return IsTransient(status) || absl::IsNotFound(status);
}

}  // namespace

bool ClusterMembers::Replace(int64_t revision, std::vector<WeightMember> members) {
  MutexLock lock(mu_);
  if (revision <= revision_) return false;
  revision_ = revision;
  std::map<std::string, Member> next;
  for (WeightMember& member : members) {
    const auto known = members_.find(member.worker);
    Member& entry = next[member.worker];
    if (known != members_.end() && known->second.member == member) {
      entry = std::move(known->second);
    } else {
      entry.member = std::move(member);
    }
  }
  members_ = std::move(next);
  return true;
}

std::vector<WeightMember> ClusterMembers::BeginPublication() {
  MutexLock lock(mu_);
  publishing_ = true;
  ++publications_;
  std::vector<WeightMember> served;
  for (const auto& [worker, member] : members_) {
    if (!member.lagging) served.push_back(member.member);
  }
  return served;
}

void ClusterMembers::EndPublication() {
  MutexLock lock(mu_);
  publishing_ = false;
}

std::optional<Delivery> ClusterMembers::BeginCatchUp(absl::Time& next) {
  const absl::Time now = clock_.Now();
  next = now + kIdleLook;
  MutexLock lock(mu_);
  if (publishing_ || !committed_.has_value()) return std::nullopt;
  const PolicyVersion policy = committed_->snapshot.manifest.policy;
  Delivery delivery{*committed_, {}, true, publications_};
  for (const auto& [worker, member] : members_) {
    if (member.holds == policy) continue;
    if (member.next_try <= now) {
      delivery.members.push_back(member.member);
    } else {
      next = std::min(next, member.next_try);
    }
  }
  if (delivery.members.empty()) return std::nullopt;
  catching_up_ = true;
  return delivery;
}

void ClusterMembers::EndCatchUp() {
  MutexLock lock(mu_);
  catching_up_ = false;
}

bool ClusterMembers::catching_up() const {
  MutexLock lock(mu_);
  return catching_up_;
}

void ClusterMembers::Commit(CommittedWeights committed) {
  MutexLock lock(mu_);
  committed_ = std::move(committed);
}

std::optional<CommittedWeights> ClusterMembers::Committed() const {
  MutexLock lock(mu_);
  return committed_;
}

void ClusterMembers::Stop() {
  MutexLock lock(mu_);
  stopping_ = true;
}

bool ClusterMembers::Departed(const Delivery& delivery, const std::string& worker) const {
  MutexLock lock(mu_);
  if (stopping_ || !members_.contains(worker)) return true;
  return delivery.background &&
         (publishing_ || committed_->receipt.policy != delivery.version.receipt.policy);
}

bool ClusterMembers::RelayOnly(const std::string& worker) const {
  MutexLock lock(mu_);
  const auto found = members_.find(worker);
  return found != members_.end() && found->second.relay_only;
}

void ClusterMembers::SetRelayOnly(const std::vector<WeightMember>& members) {
  MutexLock lock(mu_);
  for (const WeightMember& member : members) {
    const auto found = members_.find(member.worker);
    if (found != members_.end()) found->second.relay_only = true;
  }
}

bool ClusterMembers::WholeOnly(const std::string& worker) const {
  MutexLock lock(mu_);
  const auto found = members_.find(worker);
  return found != members_.end() && found->second.whole_only;
}

void ClusterMembers::SetWholeOnly(const std::string& worker) {
  MutexLock lock(mu_);
  const auto found = members_.find(worker);
  if (found != members_.end()) found->second.whole_only = true;
}

void ClusterMembers::Note(const Delivery& delivery, const DeliveryOutcomes& outcomes,
                          bool activated) {
  const PolicyVersion policy = delivery.manifest().policy;
  MutexLock lock(mu_);
  for (const WeightMember& served : delivery.members) {
    const absl::Status& status = outcomes.at(served.worker).status;
    const auto found = members_.find(served.worker);
    // The worker may have restarted meanwhile, without what its former assignment received.
    if (found == members_.end() || found->second.member != served) continue;
    Member& member = found->second;
    if (!status.ok()) {
      // A delivery cancelled by a publication is not the member's failure.
      if (delivery.background && absl::IsCancelled(status) &&
          publications_ != delivery.publications) {
        NoteCancelled(member);
      } else {
        NoteFailure(member, policy, status, activated);
      }
    } else if (activated) {
      member.holds = policy;
      member.lagging = false;
      member.retry = absl::ZeroDuration();
      member.num_cancelled = 0;
      member.max_cancelled = kFirstMaxCancelled;
    }
  }
}

void ClusterMembers::NoteCancelled(Member& member) {
  if (!member.lagging || ++member.num_cancelled < member.max_cancelled) return;
  member.lagging = false;
  member.num_cancelled = 0;
  member.max_cancelled = std::min(2 * member.max_cancelled, kLastMaxCancelled);
}

void ClusterMembers::NoteFailure(Member& member, const PolicyVersion& policy,
                                 const absl::Status& status, bool activated) {
  member.num_cancelled = 0;
  // A member that lost its prepared version has probably restarted.
  if (activated || Unreachable(status)) {
    member.lagging = true;
    member.retry = member.retry == absl::ZeroDuration() ? retry_.first
                                                        : std::min(2 * member.retry, retry_.last);
    member.next_try = clock_.Now() + member.retry;
  } else {
    member.lagging = false;
    member.next_try = clock_.Now() + retry_.last;
  }
  if (observer_ != nullptr) observer_->OnFailure(WeightFailureCause(status));
  FRESHET_LOG(Warning) << "event=weights_missed member=" << member.member.worker
                       << " version=" << policy.version << " reason=" << LogQuoted(Message(status));
}

}  // namespace freshet
