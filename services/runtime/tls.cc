#include "services/runtime/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::runtime {
namespace {

constexpr uint64_t kMaxPemBytes = 4 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

std::unique_ptr<BIO, Free> Reader(const std::string& pem) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

absl::StatusOr<std::unique_ptr<X509, Free>> ReadCertificate(const std::string& path) {
  FRESHET_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxPemBytes));
  std::unique_ptr<X509, Free> cert(PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr));
  if (cert == nullptr) return InvalidArgument(path, ": no PEM certificate");
  return cert;
}

std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> MakeProvider(
    const TlsFiles& files) {
  const auto seconds = static_cast<unsigned>(absl::ToInt64Seconds(files.refresh));
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key, files.cert, files.ca, seconds < 1 ? 1 : seconds);
}

}  // namespace

// Report unusable files here, because gRPC only logs them and then fails every handshake.
absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.ca.empty()) FRESHET_RETURN_IF_ERROR(ReadCertificate(files.ca).status());
  if (files.cert.empty() && files.key.empty()) return absl::OkStatus();
  if (files.cert.empty() || files.key.empty()) {
    return InvalidArgument("a TLS certificate and its key go together: only ",
                           files.cert.empty() ? files.key : files.cert, " is given");
  }
  FRESHET_ASSIGN_OR_RETURN(const auto cert, ReadCertificate(files.cert));
  FRESHET_ASSIGN_OR_RETURN(const std::string pem, ReadFile(files.key, kMaxPemBytes));
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr) return InvalidArgument(files.key, ": no PEM private key without password");
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return InvalidArgument(files.key, ": is not the key of the certificate ", files.cert);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files, bool require_client_cert) {
  FRESHET_RETURN_IF_ERROR(CheckTlsFiles(files));
  grpc::experimental::TlsServerCredentialsOptions options(MakeProvider(files));
  options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) options.watch_root_certs();
  options.set_cert_request_type(
      require_client_cert ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
      : files.ca.empty()  ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                          : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files) {
  FRESHET_RETURN_IF_ERROR(CheckTlsFiles(files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(MakeProvider(files));
  if (!files.ca.empty()) options.watch_root_certs();
  if (!files.cert.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<absl::Time> CertificateEnd(const std::string& path, bool all) {
  FRESHET_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxPemBytes));
  const std::unique_ptr<BIO, Free> reader = Reader(pem);
  absl::Time first = absl::InfiniteFuture();
  do {
    const std::unique_ptr<X509, Free> cert(
        PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
    if (cert == nullptr) break;
    std::tm end{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert.get()), &end) != 1) {
      return InvalidArgument(path, ": a certificate's expiry is invalid");
    }
    first = std::min(first, absl::FromTimeT(::timegm(&end)));
  } while (all);
  ERR_clear_error();  // end of file is reported as an error
  if (first == absl::InfiniteFuture()) return InvalidArgument(path, ": no PEM certificate");
  return first;
}

}  // namespace freshet::runtime
