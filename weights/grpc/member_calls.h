#ifndef FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_
#define FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/weight_member.h"

namespace freshet {

// Starts one unary call to the member at `index` with this stub and context; calls the callback
// with its status at the end.
using StartMemberCall =
    std::function<void(size_t index, weights::v1::WeightService::Stub&, grpc::ClientContext*,
                       std::function<void(grpc::Status)>)>;

struct MemberAnswer {
  absl::Status status;
  absl::Duration took;  // from the start of the call until it ended or was abandoned
  std::string worker = {};
  absl::Time ended = {};
};

// Calls to members, in parallel. Thread-safe.
class MemberCalls {
 public:
  // Each call gets `timeout`. `events` is notified of the end of each.
  MemberCalls(ChannelSource channels, absl::Duration timeout, std::shared_ptr<EventCount> events)
      : channels_(std::move(channels)), timeout_(timeout), events_(std::move(events)) {}

  // Starts a call; `start` gets the number of calls before it.
  void Start(const WeightMember& member, const StartMemberCall& start) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for all calls so far, at most until 1 s after the last deadline. A member for which
  // `departed` (may be empty) becomes true is abandoned at the next notification of `events`.
  // Returns the answers in the order of the calls.
  std::vector<MemberAnswer> Await(const std::function<bool(const std::string&)>& departed)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Call;

  const ChannelSource channels_;
  const absl::Duration timeout_;
  const std::shared_ptr<EventCount> events_;
  Mutex mu_;
  std::vector<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);
};

// Calls all members and waits for them, at most for `timeout` and 1 s; `events` and `departed` as
// for MemberCalls. Returns one answer per member, in order.
std::vector<MemberAnswer> CallMembers(const std::vector<WeightMember>& members,
                                      const ChannelSource& channels, absl::Duration timeout,
                                      const std::shared_ptr<EventCount>& events,
                                      const std::function<bool(const std::string&)>& departed,
                                      const StartMemberCall& start);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_MEMBER_CALLS_H_
