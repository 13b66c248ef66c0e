#ifndef FRESHET_SERVICES_RUNTIME_TLS_H_
#define FRESHET_SERVICES_RUNTIME_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

// When the first certificate of a PEM file ends. NOT_FOUND, INVALID_ARGUMENT: it cannot be read.
absl::StatusOr<absl::Time> CertificateEnd(const std::string& path);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_TLS_H_
