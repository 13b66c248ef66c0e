#ifndef FRESHET_SERVICES_RUNTIME_STATUS_H_
#define FRESHET_SERVICES_RUNTIME_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace freshet::runtime {

// Bytes that a status may take as trailing metadata: half of it is left for what gRPC adds, within
// the 8 KiB that a client accepts by default.
inline constexpr size_t kMaxStatusBytes = 6144;

// The same code and message; payloads that are google.rpc messages (error_details.h) become the
// binary status details. What exceeds kMaxStatusBytes is cut: first field violations from the end,
// then all details, then the message, which then ends in "...".
grpc::Status StatusToGrpc(const absl::Status& status);

// The inverse; details that cannot be read are dropped, the code and the message stay.
absl::Status GrpcToStatus(const grpc::Status& status);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_STATUS_H_
