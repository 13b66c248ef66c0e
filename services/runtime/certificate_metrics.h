#ifndef FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_

#include <string>

#include "services/metrics/series.h"
#include "services/runtime/file_stamp.h"

namespace freshet::runtime {

// freshet_tls_certificate_expiry_timestamp_seconds: when this process' own certificate ends.
// Confined to one thread at a time.
class CertificateMetrics {
 public:
  // `path`: PEM file whose first certificate counts.
  CertificateMetrics(prometheus::Registry& registry, std::string path);
  // Reads the file again when it has changed. While it cannot be used, the value stays.
  void Refresh();

 private:
  const std::string path_;
  prometheus::Gauge& expiry_;
  FileStamp stamp_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CERTIFICATE_METRICS_H_
