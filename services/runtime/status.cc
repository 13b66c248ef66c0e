#include "services/runtime/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace freshet::runtime {
namespace {

// Size of `text` as grpc-message, which percent-encodes everything but printable ASCII.
size_t EncodedSize(const std::string& text) {
  size_t size = 0;
  for (const char c : text) size += (c >= ' ' && c <= '~' && c != '%') ? 1 : 3;
  return size;
}

google::rpc::Status DetailsProto(const absl::Status& status, const std::string& message) {
  google::rpc::Status proto;
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    google::protobuf::Any* any = proto.add_details();
    any->set_type_url(std::string(type_url));
    any->set_value(std::string(payload));
  });
  if (proto.details_size() == 0) return proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(ValidUtf8(message));
  return proto;
}

// Size of the status in trailing metadata; details are base64-encoded at worst.
size_t MetadataSize(const google::rpc::Status& proto, const std::string& message) {
  const size_t details = proto.details_size() == 0 ? 0 : proto.ByteSizeLong();
  return EncodedSize(message) + (details + 2) / 3 * 4;
}

// Removes field violations from the end until the status fits. Returns false if that is not enough.
bool CutViolations(google::rpc::Status& proto, const std::string& message) {
  for (google::protobuf::Any& any : *proto.mutable_details()) {
    google::rpc::BadRequest request;
    if (!any.Is<google::rpc::BadRequest>() || !any.UnpackTo(&request)) continue;
    while (request.field_violations_size() > 1 && MetadataSize(proto, message) > kMaxStatusBytes) {
      request.mutable_field_violations()->RemoveLast();
      any.PackFrom(request);
    }
  }
  return MetadataSize(proto, message) <= kMaxStatusBytes;
}

std::string CutMessage(const std::string& message) {
  size_t size = 0;
  size_t end = 0;
  while (end < message.size()) {
    size += EncodedSize(message.substr(end, 1));
    if (size + 3 > kMaxStatusBytes) break;
    ++end;
  }
  if (end == message.size()) return message;
  // Cut at a character boundary.
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return StrCat(message.substr(0, end), "...");
}

}  // namespace

grpc::Status StatusToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Message(status);
  const auto code = static_cast<grpc::StatusCode>(status.code());
  google::rpc::Status proto = DetailsProto(status, message);
  if (MetadataSize(proto, message) > kMaxStatusBytes && !CutViolations(proto, message)) {
    return {code, CutMessage(message)};
  }
  return {code, message, proto.details_size() == 0 ? "" : proto.SerializeAsString()};
}

absl::Status GrpcToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = status.error_message();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), message);
  google::rpc::Status proto;
  if (status.error_details().empty() || !proto.ParseFromString(status.error_details())) {
    return result;
  }
  for (const google::protobuf::Any& any : proto.details()) {
    result.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return result;
}

}  // namespace freshet::runtime
