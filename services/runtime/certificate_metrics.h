#ifndef FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_

#include <array>
#include <string>

#include "services/runtime/file_stamp.h"
#include "services/runtime/series.h"

namespace freshet::runtime {

// freshet_tls_certificate_expiry_timestamp_seconds: the earliest expiry of this process's own
// certificate and its trusted CAs, including expired CAs. Not thread-safe.
class CertificateMetrics {
 public:
  // PEM files: the first certificate of `cert` and all of `ca` count; `ca` may be empty.
  CertificateMetrics(prometheus::Registry& registry, std::string cert, std::string ca = "");
  // Rereads changed files. Keeps the value while one is unusable.
  void Refresh();

 private:
  const std::string cert_;
  const std::string ca_;
  prometheus::Gauge& expiry_;
  std::array<FileStamp, 2> stamps_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
