#ifndef FRESHET_CONTROLLER_CLUSTER_MEMBERSHIP_H_
#define FRESHET_CONTROLLER_CLUSTER_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/cluster/v1/controller_record.pb.h"
#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet {

struct MembershipOptions {
  absl::Duration lost_after = absl::Seconds(2);  // silence after which a worker is lost
  // How long workers may take to reconnect to a controller that has just taken over.
  absl::Duration rejoin_grace = absl::Seconds(5);
  absl::Duration forget_after = absl::Minutes(10);  // how long lost workers are listed
  size_t max_workers = 4096;
};

struct Member {
  cluster::v1::WorkerRecord record;
  absl::Time last_seen;
  bool connected = false;            // has sent a status to this controller in this epoch
  cluster::v1::WorkerStatus status;  // without log lines
};

// Result of planning a registration.
struct Registration {
  cluster::v1::WorkerRecord record;  // after the registration
  int64_t last_epoch = 0;            // of the cluster, after the registration
  bool confirmed = false;            // the worker keeps its epoch
  std::string reason;                // as a sentence
};

struct LostWorker {
  std::string name;
  int64_t epoch = 0;
  std::string reason;
};

// The members of the cluster. An epoch is never reused. A process that registers again under an
// epoch in force (same incarnation, not lost) keeps it, so that a new leader interrupts no work;
// every other registration of a name fences the former epoch. A process that was replaced by a
// newer one cannot take the name back while the newer one lives.
//
// Decisions (Plan..., FindLost) are separate from changes, so that the caller can store a change
// before it takes effect. No I/O; time is an argument. Not thread-safe.
class Membership {
 public:
  Membership(MembershipOptions options, const cluster::v1::ClusterRecord& stored, absl::Time now);

  // INVALID_ARGUMENT naming the field; RESOURCE_EXHAUSTED if there are max_workers live workers.
  absl::StatusOr<Registration> PlanRegister(const cluster::v1::RegisterRequest& request,
                                            absl::Time now) const;
  void Register(const Registration& registration, absl::Time now);

  // FAILED_PRECONDITION: the epoch is fenced or unknown; the worker must register again.
  absl::Status OnStatus(const cluster::v1::WorkerStatus& status, absl::Time now);

  // Workers that were silent for too long or whose name the datastore refuses. If the last call was
  // longer ago than half of lost_after, this process itself was suspended; then every worker gets
  // lost_after from now on.
  std::vector<LostWorker> FindLost(absl::Time now);
  void MarkLost(const LostWorker& lost, absl::Time now);
  // Removes a worker that leaves. Unknown names and former epochs are ignored.
  void Remove(const std::string& name, int64_t epoch);
  // Lost workers that were listed long enough.
  std::vector<std::string> FindForgettable(absl::Time now) const;
  void Forget(const std::string& name);

  const std::map<std::string, Member>& members() const { return members_; }
  int64_t last_epoch() const { return last_epoch_; }
  void Store(cluster::v1::ClusterRecord& record) const;

 private:
  const MembershipOptions options_;
  std::map<std::string, Member> members_;
  int64_t last_epoch_ = 0;
  absl::Time asked_;        // time of the last FindLost
  absl::Time grace_until_;  // no worker is declared lost before
};

// "NAME#EPOCH": the worker's name in leases.
std::string LeaseName(const std::string& worker, int64_t epoch);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_MEMBERSHIP_H_
