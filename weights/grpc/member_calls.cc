#include "weights/grpc/member_calls.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

// How long gRPC may take to end a call after its deadline before the call is abandoned.
constexpr absl::Duration kGrace = absl::Seconds(1);

// Shared with the completion callback, which may run after the waiter has left.
struct Call {
  const absl::Time begun = absl::Now();
  grpc::ClientContext context;
  std::unique_ptr<weights::v1::WeightService::Stub> stub;
  Mutex mu;
  bool done ABSL_GUARDED_BY(mu) = false;
  MemberAnswer answer ABSL_GUARDED_BY(mu);
};

bool Done(Call& call) {
  MutexLock lock(call.mu);
  return call.done;
}

void End(Call& call, absl::Status status) {
  MutexLock lock(call.mu);
  if (std::exchange(call.done, true)) return;
  call.answer = {std::move(status), absl::Now() - call.begun};
}

}  // namespace

std::vector<MemberAnswer> CallMembers(const std::vector<WeightMember>& members,
                                      const ChannelSource& channels, absl::Duration timeout,
                                      const std::shared_ptr<EventCount>& events,
                                      const std::function<bool(const std::string&)>& departed,
                                      const StartMemberCall& start) {
  const absl::Time give_up = absl::Now() + timeout + kGrace;
  std::vector<std::shared_ptr<Call>> calls;
  for (const WeightMember& member : members) {
    auto call = std::make_shared<Call>();
    calls.push_back(call);
    const std::shared_ptr<grpc::Channel> channel = channels(member.address);
    if (channel == nullptr) {
      End(*call, absl::UnavailableError(StrCat("no channel to ", member.address)));
      continue;
    }
    runtime::SetDeadline(call->context, timeout);
    call->stub = weights::v1::WeightService::NewStub(channel);
    start(calls.size() - 1, *call->stub, &call->context,
          [call, events](const grpc::Status& status) {
            End(*call, runtime::GrpcToStatus(status));
            events->Notify();
          });
  }
  while (true) {
    const uint64_t seen = events->count();
    bool waiting = false;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (Done(*calls[i])) continue;
      if (departed && departed(members[i].worker)) {
        calls[i]->context.TryCancel();
        End(*calls[i], absl::CancelledError("no longer a member"));
      } else if (absl::Now() >= give_up) {
        End(*calls[i], absl::DeadlineExceededError("no answer in time"));
      } else {
        waiting = true;
      }
    }
    if (!waiting) break;
    events->Await(seen, give_up - absl::Now());
  }
  std::vector<MemberAnswer> answers;
  for (const auto& call : calls) {
    MutexLock lock(call->mu);
    answers.push_back(call->answer);
  }
  return answers;
}

}  // namespace freshet
