#ifndef FRESHET_SERVICES_RUNTIME_STATUS_H_
#define FRESHET_SERVICES_RUNTIME_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace freshet::runtime {

// Maximum size of a status in trailing metadata; leaves room for gRPC's additions within a client's
// default limit of 8 KiB.
inline constexpr size_t kMaxStatusBytes = 6144;

// Same code and message; payloads that are google.rpc messages (error_details.h) become the binary
// status details. Anything beyond kMaxStatusBytes is cut: first field violations from the end, then
// all details, then the message, which then ends in "...".
grpc::Status StatusToGrpc(const absl::Status& status);

// The inverse. Malformed details are dropped; code and message are kept.
absl::Status GrpcToStatus(const grpc::Status& status);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_STATUS_H_
