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
#include "absl/time/time.h"
#include "base/mutex.h"
#include "controller/cluster/leadership.h"

namespace freshet {

// What a standby tells the leader about a call that it passes on.
struct CallOrigin {
  bool forwarded = false;     // it comes from a standby, and is not passed on again
  std::string authorization;  // of the caller; "" when it has none
};

CallOrigin OriginOf(const grpc::CallbackServerContext& context);

// Whether a controller that does not lead may pass the call on: somebody else is known to lead.
bool MayPassOn(const CallOrigin& origin, const Leadership::View& leader);

// For the call to the leader. It ends after `timeout`.
std::unique_ptr<grpc::ClientContext> ContextToLeader(const CallOrigin& origin,
                                                     absl::Duration timeout);

// The calls to the leader that are under way. Those of a leader that is none any more (it may hang)
// and those whose caller is gone are ended within a fraction of a second. Thread-safe.
class LeaderCalls {
 public:
  // One call, for as long as the object lives. Confined to one thread.
  class Call {
   public:
    // `leader`: whom the call goes to. `caller_gone` is asked on another thread and must not block.
    // The arguments outlive the object.
    Call(LeaderCalls& calls, const Leadership::View& leader, grpc::ClientContext& context,
         std::function<bool()> caller_gone);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // What came of the call, whose status is `status`. Where the leader was left, and for an
    // UNAVAILABLE that no controller said, UNAVAILABLE with the reason LEADER_AWAY: the call may
    // have been made or not.
    absl::Status Answer(const absl::Status& status) const;

   private:
    friend class LeaderCalls;
    LeaderCalls& calls_;
    const Leadership::View leader_;
    grpc::ClientContext& context_;
    const std::function<bool()> caller_gone_;
    bool left_ = false;  // under calls_.mu_: the leader was
  };

  // `leader` is asked on another thread and must not block.
  explicit LeaderCalls(std::function<Leadership::View()> leader);
  // Stop().
  ~LeaderCalls();
  // No call is under way any more. Idempotent.
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
