#include "services/runtime/error_details.h"

#include "absl/strings/cord.h"
#include "base/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace freshet::runtime {
namespace {

constexpr char kDomain[] = "freshet";

template <typename Message>
std::string TypeUrl() {
  return StrCat("type.googleapis.com/", Message::descriptor()->full_name());
}

template <typename Message>
void Attach(absl::Status& status, const Message& message) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(message.SerializeAsString()));
}

// The payload of that type; nullopt if it is missing or malformed.
template <typename Message>
std::optional<Message> Extract(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(TypeUrl<Message>());
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

}  // namespace

absl::Status WithDetails(absl::Status status, const ErrorDetails& details) {
  if (status.ok()) return status;
  if (!details.reason.empty() || !details.metadata.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(details.reason);
    info.set_domain(kDomain);
    for (const auto& [key, value] : details.metadata) (*info.mutable_metadata())[key] = value;
    Attach(status, info);
  }
  if (details.retry_after.has_value()) {
    google::rpc::RetryInfo retry;
    absl::Duration rest = *details.retry_after;
    retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
    Attach(status, retry);
  }
  if (!details.violations.empty()) {
    google::rpc::BadRequest request;
    for (const FieldViolation& violation : details.violations) {
      auto* added = request.add_field_violations();
      added->set_field(violation.field);
      added->set_description(violation.description);
    }
    Attach(status, request);
  }
  return status;
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  if (const auto info = Extract<google::rpc::ErrorInfo>(status)) {
    details.reason = info->reason();
    details.metadata.insert(info->metadata().begin(), info->metadata().end());
  }
  if (const auto retry = Extract<google::rpc::RetryInfo>(status)) {
    details.retry_after = absl::Seconds(retry->retry_delay().seconds()) +
                          absl::Nanoseconds(retry->retry_delay().nanos());
  }
  if (const auto request = Extract<google::rpc::BadRequest>(status)) {
    for (const auto& violation : request->field_violations()) {
      details.violations.push_back({violation.field(), violation.description()});
    }
  }
  return details;
}

}  // namespace freshet::runtime
