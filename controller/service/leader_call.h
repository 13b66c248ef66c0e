#ifndef FRESHET_CONTROLLER_SERVICE_LEADER_CALL_H_
#define FRESHET_CONTROLLER_SERVICE_LEADER_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
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

// What came of the call. An UNAVAILABLE that no controller said becomes one that says that the
// leader does not answer, with the reason LEADER_AWAY: the call may have been made or not.
absl::Status AnswerOfLeader(const std::string& address, const absl::Status& status);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_SERVICE_LEADER_CALL_H_
