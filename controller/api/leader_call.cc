#include "controller/api/leader_call.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "services/runtime/channel.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

constexpr char kForwarded[] = "freshet-forwarded";
constexpr char kAuthorization[] = "authorization";
// Polling intervals: with calls in flight, and without.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kIdleLook = absl::Seconds(1);

}  // namespace

CallOrigin OriginOf(const grpc::CallbackServerContext& context) {
  CallOrigin origin;
  const auto& metadata = context.client_metadata();
  origin.forwarded = metadata.find(kForwarded) != metadata.end();
  const auto found = metadata.find(kAuthorization);
  if (found != metadata.end()) {
    origin.authorization.assign(found->second.data(), found->second.size());
  }
  return origin;
}

absl::StatusOr<LeaderLink> LinkToLeader(const Leadership::View& leader,
                                        runtime::ChannelCache& channels, const CallOrigin& origin,
                                        absl::Duration timeout) {
  if (origin.forwarded || leader.address.empty() || leader.leading) return NotLeading(leader);
  FRESHET_ASSIGN_OR_RETURN(const auto channel,
                           channels.Get(leader.address, cluster::v1::ROLE_CONTROLLER));
  LeaderLink link{leader, job::v1::JobService::NewStub(channel), runtime::CallWithin(timeout)};
  link.context->AddMetadata(kForwarded, "1");
  if (!origin.authorization.empty()) {
    link.context->AddMetadata(kAuthorization, origin.authorization);
  }
  return link;
}

LeaderCalls::Call::Call(LeaderCalls& calls, const Leadership::View& leader,
                        grpc::ClientContext& context, std::function<bool()> caller_gone)
    : calls_(calls), leader_(leader), context_(context), caller_gone_(std::move(caller_gone)) {
  MutexLock lock(calls_.mu_);
  calls_.calls_.insert(this);
  calls_.changed_.NotifyAll();
}

LeaderCalls::Call::~Call() {
  MutexLock lock(calls_.mu_);
  calls_.calls_.erase(this);
}

absl::Status LeaderCalls::Call::Answer(const absl::Status& status) const {
  bool left = false;
  {
    MutexLock lock(calls_.mu_);
    left = left_;
  }
  const bool silent = absl::IsUnavailable(status) && runtime::DetailsOf(status).reason.empty();
  if (!silent && !(left && absl::IsCancelled(status))) return status;
  runtime::ErrorDetails details;
  details.reason = runtime::kLeaderAwayReason;
  details.retry_after = absl::Milliseconds(500);
  return runtime::WithDetails(
      StatusOf(absl::StatusCode::kUnavailable, "the controller that leads, ", leader_.address,
               ", does not answer; another one is taking over, try again"),
      details);
}

LeaderCalls::LeaderCalls(std::function<Leadership::View()> leader)
    : leader_(std::move(leader)), watcher_([this] { Watch(); }) {}

LeaderCalls::~LeaderCalls() { Stop(); }

void LeaderCalls::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  if (watcher_.joinable()) watcher_.join();
}

void LeaderCalls::Watch() {
  MutexLock lock(mu_);
  while (!stopped_) {
    if (calls_.empty()) {
      changed_.WaitFor(mu_, kIdleLook);
      continue;
    }
    const Leadership::View now = leader_();
    for (Call* call : calls_) {
      // Candidate names are unique per process run, so any change means a new leader.
      if (now.leader != call->leader_.leader || now.address != call->leader_.address) {
        call->left_ = true;
      }
      if (call->left_ || call->caller_gone_()) call->context_.TryCancel();
    }
    changed_.WaitFor(mu_, kLook);
  }
}

}  // namespace freshet
