#ifndef FRESHET_LOCAL_SERVE_PROBES_H_
#define FRESHET_LOCAL_SERVE_PROBES_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/attached.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/openai/endpoint_metrics.h"
#include "services/runtime/certificate_metrics.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_server.h"
#include "services/runtime/process_metrics.h"

namespace freshet {

// /healthz, /readyz and /metrics of `freshet serve`, on a port of their own, in plaintext. Not
// ready until Serving and after Draining. Thread-safe.
class ServeProbes {
 public:
  // Returns errors of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<ServeProbes>> Start(
      const std::string& listen, const runtime::TlsFiles& tls,
      std::shared_ptr<const openai::RequestCounts> counts);

  // `queue` must live until Draining has returned.
  void Serving(const GenerationQueue& queue);
  void Draining(const GenerationQueue& queue);

  // The bound HOST:PORT.
  const std::string& address() const { return server_->address(); }

 private:
  ServeProbes(const runtime::TlsFiles& tls, std::shared_ptr<const openai::RequestCounts> counts);
  void Refresh();  // on the server's thread

  const std::shared_ptr<const openai::RequestCounts> counts_;
  Attached<const GenerationQueue> queue_;
  prometheus::Registry registry_;
  EndpointMetrics requests_;
  runtime::ProcessMetrics process_;
  std::optional<runtime::CertificateMetrics> certificate_;
  runtime::Readiness readiness_;
  std::unique_ptr<runtime::HttpServer> server_;  // uses all of the above
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_SERVE_PROBES_H_
