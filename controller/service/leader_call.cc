#include "controller/service/leader_call.h"

#include "services/base/str_cat.h"
#include "services/runtime/channel.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

// Marks a call that a standby has passed on.
constexpr char kForwarded[] = "freshet-forwarded";
constexpr char kAuthorization[] = "authorization";

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

bool MayPassOn(const CallOrigin& origin, const Leadership::View& leader) {
  return !origin.forwarded && !leader.address.empty() && !leader.leading;
}

std::unique_ptr<grpc::ClientContext> ContextToLeader(const CallOrigin& origin,
                                                     absl::Duration timeout) {
  std::unique_ptr<grpc::ClientContext> context = runtime::CallWithin(timeout);
  context->AddMetadata(kForwarded, "1");
  if (!origin.authorization.empty()) context->AddMetadata(kAuthorization, origin.authorization);
  return context;
}

absl::Status AnswerOfLeader(const std::string& address, const absl::Status& status) {
  if (!absl::IsUnavailable(status) || !runtime::DetailsOf(status).reason.empty()) return status;
  runtime::ErrorDetails details;
  details.reason = runtime::kLeaderAwayReason;
  details.retry_after = absl::Milliseconds(500);
  return runtime::WithDetails(
      StatusOf(absl::StatusCode::kUnavailable, "the controller that leads, ", address,
               ", does not answer; another one takes over, try again"),
      details);
}

}  // namespace freshet
