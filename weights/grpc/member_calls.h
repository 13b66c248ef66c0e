#ifndef FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_
#define FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/weight_member.h"

namespace freshet {

// Starts one unary call: stub, context, and what to call with the call's status at its end.
using StartMemberCall = std::function<void(weights::v1::WeightService::Stub&, grpc::ClientContext*,
                                           std::function<void(grpc::Status)>)>;

struct MemberAnswer {
  absl::Status status;
  absl::Duration took;  // from the start of the call to its end, or until it was given up
};

// Calls all members at once, each with a deadline of `timeout`, and waits for them: so one that
// hangs holds up no other, and the whole takes `timeout` at most. A member for which `departed`
// (may be empty) becomes true is given up at the next notification of `events`.
// Returns one answer per member, in their order.
std::vector<MemberAnswer> CallMembers(const std::vector<WeightMember>& members,
                                      const ChannelSource& channels, absl::Duration timeout,
                                      const std::shared_ptr<EventCount>& events,
                                      const std::function<bool(const std::string&)>& departed,
                                      const StartMemberCall& start);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_
