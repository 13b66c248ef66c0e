#include "local/serve_probes.h"

#include <utility>

#include "base/status_macros.h"
#include "base/version.h"

namespace freshet {
namespace {

constexpr char kServing[] = "serving";

}  // namespace

ServeProbes::ServeProbes(const runtime::TlsFiles& tls,
                         std::shared_ptr<const openai::RequestCounts> counts)
    : counts_(std::move(counts)), requests_(registry_), process_(registry_, "serve", Version()) {
  if (!tls.cert.empty()) certificate_.emplace(registry_, tls.cert);
  readiness_.Set(kServing, false, "the model is loaded");
}

absl::StatusOr<std::unique_ptr<ServeProbes>> ServeProbes::Start(
    const std::string& listen, const runtime::TlsFiles& tls,
    std::shared_ptr<const openai::RequestCounts> counts) {
  std::unique_ptr<ServeProbes> probes(new ServeProbes(tls, std::move(counts)));
  FRESHET_ASSIGN_OR_RETURN(
      probes->server_, runtime::HttpServer::Start(
                           listen, runtime::ProbeRoutes(probes->readiness_, probes->registry_,
                                                        [raw = probes.get()] { raw->Refresh(); })));
  return probes;
}

void ServeProbes::Serving(const GenerationQueue& queue) {
  queue_.Attach(queue);
  readiness_.Set(kServing, true);
}

void ServeProbes::Draining(const GenerationQueue& queue) {
  readiness_.Set(kServing, false, "draining");
  queue_.Detach(queue);
}

void ServeProbes::Refresh() {
  openai::EndpointPortStats shown;
  queue_.With(
      [&shown](const GenerationQueue& queue, int64_t) { shown.SetRequests(queue.stats()); });
  requests_.Show(*counts_, shown);
  process_.Refresh();
  if (certificate_.has_value()) certificate_->Refresh();
}

}  // namespace freshet
