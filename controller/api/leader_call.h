#ifndef FRESHET_CONTROLLER_API_LEADER_CALL_H_
#define FRESHET_CONTROLLER_API_LEADER_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "controller/cluster/leadership.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "services/worker/channel_cache.h"

namespace freshet {

// Metadata of a call that a standby forwards to the leader.
struct CallOrigin {
  bool forwarded = false;     // a standby forwarded it; do not forward it again
  std::string authorization;  // of the caller; "" if none
};

CallOrigin OriginOf(const grpc::CallbackServerContext& context);

// What one call to the leader needs.
struct LeaderLink {
  Leadership::View leader;
  std::unique_ptr<job::v1::JobService::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
};

// Prepares a call to the leader, with deadline `timeout`. NotLeading if no other controller is
// known to lead, or if a standby forwarded the call to this one.
absl::StatusOr<LeaderLink> LinkToLeader(const Leadership::View& leader,
                                        runtime::ChannelCache& channels, const CallOrigin& origin,
                                        absl::Duration timeout);

// The calls to the leader that are in flight. A call is cancelled within a fraction of a second if
// its leader is replaced (the old one may hang) or its caller is gone. Thread-safe.
class LeaderCalls {
 public:
  // One call; registered while the object lives. Not thread-safe.
  class Call {
   public:
    // `leader` is the callee. `caller_gone` runs on another thread and must not block. The
    // arguments must outlive the object.
    Call(LeaderCalls& calls, const Leadership::View& leader, grpc::ClientContext& context,
         std::function<bool()> caller_gone);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Maps the call's status. If the leader was replaced, or for an UNAVAILABLE that came from the
    // transport, returns UNAVAILABLE with reason LEADER_AWAY: the call may or may not have been
    // executed.
    absl::Status Answer(const absl::Status& status) const;

   private:
    friend class LeaderCalls;
    LeaderCalls& calls_;
    const Leadership::View leader_;
    grpc::ClientContext& context_;
    const std::function<bool()> caller_gone_;
    bool left_ = false;  // under calls_.mu_: the leader was replaced
  };

  // `leader` is called on another thread and must not block.
  explicit LeaderCalls(std::function<Leadership::View()> leader);
  // Calls Stop().
  ~LeaderCalls();
  // No call may be in flight. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Watch() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<Leadership::View()> leader_;
  Mutex mu_;
  CondVar changed_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread watcher_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_LEADER_CALL_H_
