#include "weights/grpc/member_calls.h"

#include <algorithm>
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

}  // namespace

// Shared with the completion callback, which may run after the waiter has left.
struct MemberCalls::Call {
  const std::string worker;
  const absl::Time begun;
  const absl::Time give_up;
  grpc::ClientContext context = {};
  std::unique_ptr<weights::v1::WeightService::Stub> stub = nullptr;
  Mutex mu = {};
  bool done ABSL_GUARDED_BY(mu) = false;
  MemberAnswer answer ABSL_GUARDED_BY(mu) = {};

  bool Done() {
    MutexLock lock(mu);
    return done;
  }
  void End(absl::Status status) {
    MutexLock lock(mu);
    if (std::exchange(done, true)) return;
    const absl::Time now = absl::Now();
    answer = {std::move(status), now - begun, worker, now};
  }
};

void MemberCalls::Start(const WeightMember& member, const StartMemberCall& start) {
  const absl::Time now = absl::Now();
  const std::shared_ptr<Call> call(new Call{member.worker, now, now + timeout_ + kGrace});
  size_t index = 0;
  {
    const MutexLock lock(mu_);
    index = calls_.size();
    calls_.push_back(call);
  }
  const std::shared_ptr<grpc::Channel> channel = channels_(member.address);
  if (channel == nullptr) {
    call->End(absl::UnavailableError(StrCat("no channel to ", member.address)));
    return;
  }
  runtime::SetDeadline(call->context, timeout_);
  call->stub = weights::v1::WeightService::NewStub(channel);
  start(index, *call->stub, &call->context, [call, events = events_](const grpc::Status& status) {
    call->End(runtime::GrpcToStatus(status));
    events->Notify();
  });
}

std::vector<MemberAnswer> MemberCalls::Await(
    const std::function<bool(const std::string&)>& departed) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    const MutexLock lock(mu_);
    calls = calls_;
  }
  while (true) {
    const uint64_t seen = events_->count();
    const absl::Time now = absl::Now();
    absl::Time give_up = absl::InfinitePast();
    for (const auto& call : calls) {
      if (call->Done()) continue;
      if (departed && departed(call->worker)) {
        call->context.TryCancel();
        call->End(absl::CancelledError("no longer a member"));
      } else if (now >= call->give_up) {
        call->End(absl::DeadlineExceededError("no answer in time"));
      } else {
        give_up = std::max(give_up, call->give_up);
      }
    }
    if (give_up == absl::InfinitePast()) break;
    events_->Await(seen, give_up - now);
  }
  std::vector<MemberAnswer> answers;
  for (const auto& call : calls) {
    MutexLock lock(call->mu);
    answers.push_back(call->answer);
  }
  return answers;
}

std::vector<MemberAnswer> CallMembers(const std::vector<WeightMember>& members,
                                      const ChannelSource& channels, absl::Duration timeout,
                                      const std::shared_ptr<EventCount>& events,
                                      const std::function<bool(const std::string&)>& departed,
                                      const StartMemberCall& start) {
  MemberCalls calls(channels, timeout, events);
  for (const WeightMember& member : members) calls.Start(member, start);
  return calls.Await(departed);
}

}  // namespace freshet
