#ifndef FRESHET_WEIGHTS_GRPC_CLUSTER_MEMBERS_H_
#define FRESHET_WEIGHTS_GRPC_CLUSTER_MEMBERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/policy_version.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

// A version being sent to some members.
struct Delivery {
  CommittedWeights version;
  std::vector<WeightMember> members;
  bool background = false;
  int64_t publications = 0;  // that had begun before it
  // Committed before `version`: the base of differences. Absent without those.
  std::optional<CommittedWeights> former = std::nullopt;

  const WeightManifest& manifest() const { return version.snapshot.manifest; }
  const WeightBytes& bytes() const { return version.snapshot.bytes; }
};

// Result for one member. `took`: its transfer, from the start of its calls or chain, and its
// activation.
struct DeliveryOutcome {
  absl::Status status;
  absl::Duration took;
  const char* route = "shm";
};
using DeliveryOutcomes = std::map<std::string, DeliveryOutcome>;  // by worker

// What a trainer knows of its engines: the version that each holds, its address, and whether the
// next publication or a background delivery serves it, and when. At most one of each runs; a
// publication cancels a background delivery. A member whose deliveries are cancelled again and
// again, because they take longer than a step, is served by a publication.
// Thread-safe.
class ClusterMembers {
 public:
  // Interval between attempts to send the committed version to a member that missed it: doubles
  // from `first_retry` to `last_retry`. If the member refused it: `last_retry`.
  struct Retry {
    absl::Duration first;
    absl::Duration last;
  };
  // `observer` may be null.
  ClusterMembers(Retry retry, const Clock& clock, WeightSyncObserver* observer)
      : retry_(retry), clock_(clock), observer_(observer) {}

  // Replaces the members. False, without effect: `revision` is not larger than all before.
  bool Replace(int64_t revision, std::vector<WeightMember> members) ABSL_LOCKS_EXCLUDED(mu_);

  // Starts a publication. Returns the members that it serves.
  std::vector<WeightMember> BeginPublication() ABSL_LOCKS_EXCLUDED(mu_);
  void EndPublication() ABSL_LOCKS_EXCLUDED(mu_);

  // Starts a background delivery of the committed version to the members that lack it and are due.
  // If there are none, sets `next` to the next due time, at most a minute away.
  std::optional<Delivery> BeginCatchUp(absl::Time& next) ABSL_LOCKS_EXCLUDED(mu_);
  void EndCatchUp() ABSL_LOCKS_EXCLUDED(mu_);
  bool catching_up() const ABSL_LOCKS_EXCLUDED(mu_);

  // The newest committed version.
  void Commit(CommittedWeights committed) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<CommittedWeights> Committed() const ABSL_LOCKS_EXCLUDED(mu_);

  // From now on, no delivery waits for a member.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a delivery should no longer wait for a member.
  bool Departed(const Delivery& delivery, const std::string& worker) const ABSL_LOCKS_EXCLUDED(mu_);

  // Members that cannot share memory or broadcasts with this process.
  bool RelayOnly(const std::string& worker) const ABSL_LOCKS_EXCLUDED(mu_);
  void SetRelayOnly(const std::vector<WeightMember>& members) ABSL_LOCKS_EXCLUDED(mu_);
  // A member to which differences between versions have arrived corrupt.
  bool WholeOnly(const std::string& worker) const ABSL_LOCKS_EXCLUDED(mu_);
  void SetWholeOnly(const std::string& worker) ABSL_LOCKS_EXCLUDED(mu_);

  // Records the results of a delivery, which has one for each of its members. `activated`: they are
  // results of Activate.
  void Note(const Delivery& delivery, const DeliveryOutcomes& outcomes, bool activated)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr int kFirstMaxCancelled = 2;
  struct Member {
    WeightMember member;
    std::optional<PolicyVersion> holds;  // newest version that this transport activated there
    bool relay_only = false;
    bool whole_only = false;
    bool lagging = false;  // was unreachable, served in the background
    // Background deliveries that publications cancelled, since its last result. At `max_cancelled`,
    // the next publication serves it.
    int num_cancelled = 0;
    int max_cancelled = kFirstMaxCancelled;
    absl::Time next_try = absl::InfinitePast();
    absl::Duration retry;
  };

  static void NoteCancelled(Member& member);
  void NoteFailure(Member& member, const PolicyVersion& policy, const absl::Status& status,
                   bool activated) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Retry retry_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  mutable Mutex mu_;
  int64_t revision_ ABSL_GUARDED_BY(mu_) = -1;
  std::map<std::string, Member> members_ ABSL_GUARDED_BY(mu_);
  bool publishing_ ABSL_GUARDED_BY(mu_) = false;
  int64_t publications_ ABSL_GUARDED_BY(mu_) = 0;  // that have begun
  bool catching_up_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<CommittedWeights> committed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CLUSTER_MEMBERS_H_
