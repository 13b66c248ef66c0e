#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "services/runtime/http_server.h"

namespace freshet::runtime {

HttpRoutes ProbeRoutes(const Readiness& readiness, prometheus::Registry& registry,
                       std::function<void()> before_scrape) {
  HttpRoutes routes;
  routes["/healthz"] = [] { return HttpResponse{.body = "ok\n"}; };
  routes["/readyz"] = [&readiness] {
    HttpResponse response;
    response.body = readiness.Describe() + "\n";
    // One answer: the text and the code come from the same look.
    response.status = response.body == "ready\n" ? 200 : 503;
    return response;
  };
  routes["/metrics"] = [&registry, before_scrape = std::move(before_scrape)] {
    if (before_scrape) before_scrape();
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = prometheus::TextSerializer().Serialize(registry.Collect());
    return response;
  };
  return routes;
}

}  // namespace freshet::runtime
