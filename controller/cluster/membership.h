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
  // What workers get to come back to a controller that has just taken over.
  absl::Duration rejoin_grace = absl::Seconds(5);
  absl::Duration forget_after = absl::Minutes(10);  // lost workers are shown for so long
  size_t max_workers = 4096;
};

// A worker as of its last status.
struct Member {
  cluster::v1::WorkerRecord record;
  absl::Time last_seen;
  bool connected = false;            // has sent a status in this epoch to this controller
  cluster::v1::WorkerStatus status;  // without log lines
};

// What a registration leads to.
struct Registration {
  cluster::v1::WorkerRecord record;  // as it will be
  int64_t last_epoch = 0;            // of the cluster, afterwards
  bool confirmed = false;            // the epoch that it had stays
  std::string reason;                // for people
};

struct LostWorker {
  std::string name;
  int64_t epoch = 0;
  std::string reason;
};

// Who belongs to the cluster. An epoch is given out once and never again. A process that comes back
// under an epoch that is still in force (same incarnation, not lost) keeps it, so that a controller
// that takes over interrupts nobody; every other registration of a name fences the former epoch. A
// process that a newer one has replaced cannot take the name back while that one lives.
//
// Decisions (Plan..., FindLost) are apart from changes, so that the caller can store a change
// before it takes effect. Pure but for its own state; time is an argument. Confined to one thread
// at a time.
class Membership {
 public:
  Membership(MembershipOptions options, const cluster::v1::ClusterRecord& stored, absl::Time now);

  // INVALID_ARGUMENT naming the field; RESOURCE_EXHAUSTED with max_workers live ones.
  absl::StatusOr<Registration> PlanRegister(const cluster::v1::RegisterRequest& request,
                                            absl::Time now) const;
  void Register(const Registration& registration, absl::Time now);

  // FAILED_PRECONDITION: the epoch is fenced or unknown; the worker has to register again.
  absl::Status OnStatus(const cluster::v1::WorkerStatus& status, absl::Time now);

  // Workers that have been silent for too long, or whose name the datastore refuses. When nobody
  // has asked for longer than half of lost_after, this process itself was not running: then all get
  // lost_after from now on.
  std::vector<LostWorker> FindLost(absl::Time now);
  void MarkLost(const LostWorker& lost, absl::Time now);
  // Leaves; unknown names and former epochs are ignored.
  void Remove(const std::string& name, int64_t epoch);
  // Lost workers whose time of being shown is over.
  std::vector<std::string> FindForgettable(absl::Time now) const;
  void Forget(const std::string& name);

  const std::map<std::string, Member>& members() const { return members_; }
  int64_t last_epoch() const { return last_epoch_; }
  // Epochs and workers as they are to be stored.
  void Store(cluster::v1::ClusterRecord& record) const;

 private:
  const MembershipOptions options_;
  std::map<std::string, Member> members_;
  int64_t last_epoch_ = 0;
  absl::Time asked_;        // of the last FindLost
  absl::Time grace_until_;  // nobody is lost before
};

// "NAME#EPOCH": how leases name a worker.
std::string LeaseName(const std::string& worker, int64_t epoch);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_MEMBERSHIP_H_
