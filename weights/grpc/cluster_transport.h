#ifndef FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_
#define FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"
#include "weights/weight_sync_observer.h"
#include "weights/weight_transport.h"

namespace freshet {

// How a trainer reaches engines of other processes.
enum class ClusterRoute {
  kAuto,   // shared memory where an engine can reach it, else the relay
  kShm,    // shared memory only
  kRelay,  // chain of chunk streams only
};

// "auto", "shm" or "grpc_relay", as weight_sync.transport says it. INVALID_ARGUMENT: another one.
absl::StatusOr<ClusterRoute> ParseClusterRoute(std::string_view transport);

struct ClusterTransportOptions {
  std::string job;
  ClusterRoute route = ClusterRoute::kAuto;
  std::string host;  // runtime::HostId()
  // Longest time that bringing one version may take; slower members are left out of it.
  absl::Duration timeout = absl::Seconds(30);
  // A member of a chain that is not heard from for so long is skipped.
  absl::Duration silence_timeout = absl::Seconds(8);
  absl::Duration activate_timeout = absl::Seconds(5);
  // Between attempts to bring the committed version to a member that missed it: doubles from the
  // first to the second; to one that refused it: the second.
  absl::Duration first_retry = absl::Milliseconds(500);
  absl::Duration last_retry = absl::Seconds(30);
};

// A member as the trainer sees it.
struct MemberView {
  WeightMember member;
  std::optional<PolicyVersion> holds;  // newest version that it has activated by our doing
  std::string error;                   // of the last attempt; "" after a success
};

// Carries versions from the trainer to the engines of a cluster, whose membership may change at any
// time. Prepare reaches all members at once: through shared memory those that can, the others down
// a chain. It takes `timeout` at most, whatever the members do; a member that leaves meanwhile is
// not waited for. A member that could not be reached is no longer waited for by later publications:
// it is served in the background, as is one that joins between two publications, until it holds the
// committed version. One that refuses a version is offered it again, though seldom.
// Prepare and Activate: by one thread, in turns. All else is thread-safe.
class ClusterTransport final : public WeightTransport {
 public:
  // `observer` may be null.
  ClusterTransport(ClusterTransportOptions options, ChannelSource channels, const Clock& clock,
                   WeightSyncObserver* observer);
  ~ClusterTransport() override;

  // The members from now on; ignored unless `revision` is larger than any before.
  void SetMembers(int64_t revision, std::vector<WeightMember> members) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t Prepare(const WeightManifest& manifest, WeightBytes bytes) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Activate(const CommitReceipt& receipt) override ABSL_LOCKS_EXCLUDED(mu_);

  // The newest committed version, for the WeightService of the trainer.
  std::optional<CommittedWeights> Committed() const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<MemberView> Members() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Member {
    MemberView view;
    bool relay_only = false;  // shares no memory with us
    bool lagging = false;     // could not be reached: served in the background
    absl::Time next_try = absl::InfinitePast();
    absl::Duration retry;
  };
  // One version on its way to some members.
  struct Delivery {
    WeightManifest manifest;
    WeightBytes bytes;
    std::vector<WeightMember> members;
    bool background = false;
  };
  // What became of one member of a delivery, and when, counted from the start of its call or chain.
  struct Outcome {
    absl::Status status;
    absl::Duration took;
    bool relayed = false;
  };
  using Outcomes = std::map<std::string, Outcome>;  // by worker

  // Brings a version to members; every one of them has an outcome.
  Outcomes Deliver(const Delivery& delivery) ABSL_LOCKS_EXCLUDED(mu_);
  Outcomes SendShared(const Delivery& delivery, const WeightArena& file,
                      const std::vector<WeightMember>& members);
  Outcomes SendRelay(const Delivery& delivery, const std::vector<WeightMember>& members,
                     absl::Time deadline);
  Outcomes SendActivate(const Delivery& delivery, const CommitReceipt& receipt);
  // True when a delivery shall not wait for a member any more.
  bool Departed(const Delivery& delivery, const std::string& worker) const ABSL_LOCKS_EXCLUDED(mu_);
  bool RelayOnly(const std::string& worker) const ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the observer how long those members took that now have what was published.
  void Observe(const Delivery& delivery, const Outcomes& outcomes) const;
  // Notes what became of a delivery's members; `activated`: the outcomes are those of Activate.
  void Note(const Delivery& delivery, const Outcomes& outcomes, bool activated)
      ABSL_LOCKS_EXCLUDED(mu_);
  void NoteFailure(Member& member, const PolicyVersion& policy, const absl::Status& status,
                   bool activated) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void RunCatchUp(std::stop_token stop) ABSL_LOCKS_EXCLUDED(mu_);
  // The members that lack the committed version and are due; else sets `next` to when one will be.
  std::optional<Delivery> NextCatchUp(absl::Time& next) ABSL_LOCKS_EXCLUDED(mu_);

  const ClusterTransportOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  const std::shared_ptr<EventCount> events_ = std::make_shared<EventCount>();
  mutable Mutex mu_;
  int64_t revision_ ABSL_GUARDED_BY(mu_) = -1;
  std::map<std::string, Member> members_ ABSL_GUARDED_BY(mu_);
  bool publishing_ ABSL_GUARDED_BY(mu_) = false;   // from Prepare to the end of Activate
  bool catching_up_ ABSL_GUARDED_BY(mu_) = false;  // a background delivery runs
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<CommittedWeights> committed_ ABSL_GUARDED_BY(mu_);
  Delivery prepared_;  // of the publisher's thread: what Activate is for, with those who hold it
  std::jthread catch_up_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CLUSTER_TRANSPORT_H_
