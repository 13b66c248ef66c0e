#include "services/runtime/certificate_metrics.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {
namespace {

constexpr uint64_t kMaxPemBytes = 4 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
};

// The earliest expiry of all certificates of a PEM file.
absl::StatusOr<absl::Time> FirstEndOf(const std::string& path) {
  FRESHET_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxPemBytes));
  const std::unique_ptr<BIO, Free> reader(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  absl::Time first = absl::InfiniteFuture();
  for (;;) {
    const std::unique_ptr<X509, Free> cert(
        PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
    if (cert == nullptr) break;
    std::tm end{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert.get()), &end) != 1) {
      return InvalidArgument(path, ": a certificate's expiry is invalid");
    }
    first = std::min(first, absl::FromTimeT(::timegm(&end)));
  }
  ERR_clear_error();  // end of file is reported as an error
  if (first == absl::InfiniteFuture()) return InvalidArgument(path, ": no PEM certificate");
  return first;
}

absl::StatusOr<absl::Time> FirstEnd(const std::string& cert, const std::string& ca) {
  FRESHET_ASSIGN_OR_RETURN(const absl::Time own, CertificateEnd(cert));
  if (ca.empty()) return own;
  FRESHET_ASSIGN_OR_RETURN(const absl::Time authorities, FirstEndOf(ca));
  return std::min(own, authorities);
}

}  // namespace

CertificateMetrics::CertificateMetrics(prometheus::Registry& registry, std::string cert,
                                       std::string ca)
    : cert_(std::move(cert)),
      ca_(std::move(ca)),
      expiry_(metrics::GaugeFamily(registry, "freshet_tls_certificate_expiry_timestamp_seconds",
                                   "Unix time of the earliest expiry among this process's "
                                   "certificate and the CAs that it trusts.")
                  .Add({})) {
  Refresh();
}

void CertificateMetrics::Refresh() {
  const std::array<FileStamp, 2> stamps = {StampOf(cert_), StampOf(ca_)};
  if (stamps == stamps_) return;
  stamps_ = stamps;
  const absl::StatusOr<absl::Time> end = FirstEnd(cert_, ca_);
  if (end.ok()) {
    expiry_.Set(static_cast<double>(absl::ToUnixSeconds(*end)));
  } else {
    FRESHET_LOG(Error) << "event=certificate_kept error=" << LogQuoted(Message(end.status()));
  }
}

}  // namespace freshet::runtime
