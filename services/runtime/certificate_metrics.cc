#include "services/runtime/certificate_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {
namespace {

absl::StatusOr<absl::Time> FirstEnd(const std::string& cert, const std::string& ca) {
  FRESHET_ASSIGN_OR_RETURN(const absl::Time own, CertificateEnd(cert));
  if (ca.empty()) return own;
  FRESHET_ASSIGN_OR_RETURN(const absl::Time authorities, CertificateEnd(ca, /*all=*/true));
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
