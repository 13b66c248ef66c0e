#include "services/runtime/rpc_metrics.h"

#include <grpcpp/support/interceptor.h>

#include <array>
#include <utility>

#include "base/clock.h"
#include "base/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace freshet::runtime {
namespace {

using grpc::experimental::InterceptionHookPoints;

// 1 ms to 60 s; longer calls are streams.
const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const auto* buckets = new prometheus::Histogram::BucketBoundaries{
      0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  return *buckets;
}

const char* CodeName(int code) {
  static constexpr std::array<const char*, 17> kNames = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  return code >= 0 && code < static_cast<int>(kNames.size()) ? kNames[static_cast<size_t>(code)]
                                                             : "Unknown";
}

class MetricsInterceptor final : public grpc::experimental::Interceptor {
 public:
  MetricsInterceptor(std::shared_ptr<RpcMetrics> metrics, const char* method)
      : metrics_(std::move(metrics)), method_(method), start_(SystemClock::Get().Now()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      metrics_->Observe(method_, methods->GetSendStatus().error_code(),
                        SystemClock::Get().Now() - start_);
    }
    methods->Proceed();
  }

 private:
  const std::shared_ptr<RpcMetrics> metrics_;
  const std::string method_;
  const absl::Time start_;
};

}  // namespace

RpcMetrics::RpcMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      handled_(prometheus::BuildCounter()
                   .Name("freshet_grpc_server_handled_total")
                   .Help("Calls that this server has answered, by status code.")
                   .Register(*registry_)),
      seconds_(prometheus::BuildHistogram()
                   .Name("freshet_grpc_server_handling_seconds")
                   .Help("Seconds from the start of a call to its status.")
                   .Register(*registry_)) {}

prometheus::Counter& RpcMetrics::CounterOf(Method& entry, const std::string& method, int code) {
  if (entry.seconds == nullptr) {
    const size_t slash = method.rfind('/');
    entry.labels = {{"grpc_service", method.substr(1, slash - 1)},
                    {"grpc_method", method.substr(slash + 1)}};
    entry.seconds = &seconds_.Add(entry.labels, Buckets());
  }
  prometheus::Counter*& cached = entry.by_code[code];
  if (cached == nullptr) {
    prometheus::Labels labels = entry.labels;
    labels["grpc_code"] = CodeName(code);
    cached = &handled_.Add(labels);
  }
  return *cached;
}

void RpcMetrics::Announce(const std::string& service) {
  const google::protobuf::ServiceDescriptor* known =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  if (known == nullptr) return;
  MutexLock lock(mu_);
  for (int i = 0; i < known->method_count(); ++i) {
    const std::string method = StrCat("/", service, "/", known->method(i)->name());
    CounterOf(methods_[method], method, grpc::StatusCode::OK);
  }
}

void RpcMetrics::Observe(const std::string& method, int code, absl::Duration duration) {
  prometheus::Counter* counter = nullptr;
  prometheus::Histogram* seconds = nullptr;
  {
    MutexLock lock(mu_);
    Method& entry = methods_[method];
    counter = &CounterOf(entry, method, code);
    seconds = entry.seconds;
  }
  counter->Increment();
  seconds->Observe(absl::ToDoubleSeconds(duration));
}

grpc::experimental::Interceptor* RpcMetricsFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new MetricsInterceptor(metrics_, info->method());  // gRPC takes ownership
}

}  // namespace freshet::runtime
