#ifndef FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_

#include <array>
#include <string>

#include "services/runtime/file_stamp.h"
#include "services/runtime/series.h"

namespace freshet::runtime {

// freshet_tls_certificate_expiry_timestamp_seconds: when the first of this process' own certificate
// and the authorities that it trusts ends. An authority that has ended counts as long as it is
// among them.
// Confined to one thread at a time.
class CertificateMetrics {
 public:
  // PEM files: the first certificate of `cert` and all of `ca` count; `ca` may be empty.
  CertificateMetrics(prometheus::Registry& registry, std::string cert, std::string ca = "");
  // Reads the files again when one has changed. While one cannot be used, the value stays.
  void Refresh();

 private:
  const std::string cert_;
  const std::string ca_;
  prometheus::Gauge& expiry_;
  std::array<FileStamp, 2> stamps_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
