#ifndef FRESHET_SERVICES_RUNTIME_TLS_H_
#define FRESHET_SERVICES_RUNTIME_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {

// NOT_FOUND: an unreadable file; INVALID_ARGUMENT: not PEM, or key and certificate do not match.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Credentials that reread their files every `refresh`, for new connections. Errors of
// CheckTlsFiles.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files, bool require_client_cert);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files);

// Expiry of the first certificate of a PEM file, or the earliest of all. NOT_FOUND,
// INVALID_ARGUMENT: it cannot be read.
absl::StatusOr<absl::Time> CertificateEnd(const std::string& path, bool all = false);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_TLS_H_
