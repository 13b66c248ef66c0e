#ifndef FRESHET_SERVICES_RUNTIME_RPC_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_RPC_METRICS_H_

#include <grpcpp/support/server_interceptor.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet::runtime {

// Metrics of a server's calls: freshet_grpc_server_handled_total{grpc_service, grpc_method,
// grpc_code} and freshet_grpc_server_handling_seconds{grpc_service, grpc_method}. Only existing
// methods are recorded, so the labels are bounded. Thread-safe.
class RpcMetrics {
 public:
  explicit RpcMetrics(std::shared_ptr<prometheus::Registry> registry);
  // Creates the series with code OK for all methods of a service, so that they exist before the
  // first call. Ignores a service whose proto is not linked into the program.
  void Announce(const std::string& service) ABSL_LOCKS_EXCLUDED(mu_);
  // `method` is "/pkg.Service/Method"; `code` is a gRPC code.
  void Observe(const std::string& method, int code, absl::Duration duration)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Method {
    prometheus::Labels labels;
    prometheus::Histogram* seconds = nullptr;
    std::map<int, prometheus::Counter*> by_code;
  };
  prometheus::Counter& CounterOf(Method& entry, const std::string& method, int code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& handled_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  Mutex mu_;
  std::map<std::string, Method> methods_ ABSL_GUARDED_BY(mu_);
};

// The interceptor that records the metrics.
class RpcMetricsFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit RpcMetricsFactory(std::shared_ptr<RpcMetrics> metrics) : metrics_(std::move(metrics)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  const std::shared_ptr<RpcMetrics> metrics_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_RPC_METRICS_H_
