#include "cli/client/controller_links.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

constexpr absl::Duration kConnect = absl::Seconds(1);

// Whether the channel connects within kConnect.
bool Connects(grpc::Channel& channel) {
  const auto deadline = absl::ToChronoTime(absl::Now() + kConnect);
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel.WaitForStateChange(state, deadline)) return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControllerLinks>> ControllerLinks::Create(
    const std::vector<std::string>& addresses, const runtime::ChannelOptions& options) {
  if (addresses.empty()) return InvalidArgument("the server has no address");
  std::vector<Link> links;
  for (const std::string& address : addresses) {
    FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                             runtime::MakeChannel(address, options));
    links.push_back({address, std::move(channel)});
  }
  return std::unique_ptr<ControllerLinks>(new ControllerLinks(std::move(links)));
}

ControllerLinks::Link ControllerLinks::Choose() {
  size_t first = 0;
  {
    const MutexLock lock(mu_);
    first = used_;
  }
  if (links_.size() == 1) return links_.front();
  for (size_t i = 0; i < links_.size(); ++i) {
    const size_t at = (first + i) % links_.size();
    if (!Connects(*links_[at].channel)) continue;
    const MutexLock lock(mu_);
    used_ = at;
    return links_[at];
  }
  return links_[first];
}

void ControllerLinks::Report(const Link& link, const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return;
  const runtime::ErrorDetails details = runtime::DetailsOf(status);
  const auto leader = details.metadata.find(runtime::kLeaderMetadata);
  const MutexLock lock(mu_);
  for (size_t at = 0; leader != details.metadata.end() && at < links_.size(); ++at) {
    if (links_[at].address != leader->second) continue;
    used_ = at;
    return;
  }
  // Another call may have switched already.
  if (details.reason.empty() && links_[used_].address == link.address) {
    used_ = (used_ + 1) % links_.size();
  }
}

bool ControllerLinks::MayTryAgain(const absl::Status& status, bool repeatable) const {
  if (!absl::IsUnavailable(status)) return false;
  const std::string reason = runtime::DetailsOf(status).reason;
  if (reason == runtime::kNotLeaderReason) return true;  // the call was not executed
  return repeatable &&
         (reason == runtime::kLeaderAwayReason || (reason.empty() && links_.size() > 1));
}

}  // namespace freshet
