#ifndef FRESHET_SERVICES_RUNTIME_TLS_H_
#define FRESHET_SERVICES_RUNTIME_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {

// Credentials that read their files again every `refresh`; new connections use the new ones.
// Returns NOT_FOUND: a file cannot be read; INVALID_ARGUMENT: it is not PEM, or key and certificate
// do not belong together.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files, bool require_client_cert);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_TLS_H_
