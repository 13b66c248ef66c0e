#include "services/runtime/certificate_metrics.h"

#include <utility>

#include "services/base/log.h"
#include "services/base/str_cat.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {

CertificateMetrics::CertificateMetrics(prometheus::Registry& registry, std::string path)
    : path_(std::move(path)),
      expiry_(metrics::GaugeFamily(registry, "freshet_tls_certificate_expiry_timestamp_seconds",
                                   "Unix time at which the certificate of this process ends.")
                  .Add({})) {
  Refresh();
}

void CertificateMetrics::Refresh() {
  const FileStamp stamp = StampOf(path_);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  const absl::StatusOr<absl::Time> end = CertificateEnd(path_);
  if (end.ok()) {
    expiry_.Set(static_cast<double>(absl::ToUnixSeconds(*end)));
  } else {
    FRESHET_LOG(Error) << "event=certificate_kept error=\"" << Message(end.status()) << "\"";
  }
}

}  // namespace freshet::runtime
