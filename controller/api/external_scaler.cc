#include "controller/api/external_scaler.h"

#include <algorithm>
#include <optional>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "controller/api/api_errors.h"
#include "services/runtime/unary.h"

namespace freshet {
namespace {

using externalscaler::GetMetricSpecResponse;
using externalscaler::GetMetricsRequest;
using externalscaler::GetMetricsResponse;
using externalscaler::IsActiveResponse;
using externalscaler::ScaledObjectRef;

constexpr char kMetric[] = "wanted";
constexpr char kPool[] = "pool";

absl::Status Gone() { return absl::CancelledError("the client is gone"); }

std::string PoolNamedBy(const ScaledObjectRef& target) {
  const auto found = target.scalermetadata().find(kPool);
  return found == target.scalermetadata().end() || found->second.empty() ? "default"
                                                                         : found->second;
}

absl::Status NoBounds(const std::string& pool) {
  return NotFound("pool ", pool.substr(0, 80),
                  " is not autoscaled; start the controllers with --pool-bounds ",
                  pool.substr(0, 80), "=MIN..MAX");
}

GetMetricSpecResponse TheMetric() {
  GetMetricSpecResponse response;
  externalscaler::MetricSpec* spec = response.add_metricspecs();
  spec->set_metricname(kMetric);
  spec->set_targetsize(1);
  spec->set_targetsizefloat(1);
  return response;
}

// Sleeps; returns false if the stream ended.
template <typename Response>
bool Pause(const StreamSink<Response>& sink, absl::Duration time) {
  Notification never;
  const absl::Time until = absl::Now() + time;
  while (!sink.ended() && absl::Now() < until) {
    never.WaitFor(std::min(time, ExternalScalerImpl::kLook));
  }
  return !sink.ended();
}

}  // namespace

void ExternalScalerImpl::Stop() {
  executor_.Stop();
  streams_.Stop();
}

absl::StatusOr<int32_t> ExternalScalerImpl::Wanted(const ScaledObjectRef& target) const {
  const std::string pool = PoolNamedBy(target);
  if (const auto term = controller_.Active()) {
    const std::optional<PoolStats> stats = term->pools.Find(pool);
    if (!stats.has_value()) {
      if (!controller_.options().pools.bounds.contains(pool)) return NoBounds(pool);
      return StatusOf(absl::StatusCode::kUnavailable, "pool ", pool,
                      " has not been evaluated yet; try again");
    }
    if (!stats->bounds.has_value()) return NoBounds(pool);
    return stats->wanted;
  }
  FRESHET_ASSIGN_OR_RETURN(const job::v1::Cluster cluster, cluster_.Cluster());
  for (const job::v1::PoolScale& scale : cluster.pools()) {
    if (scale.pool() != pool) continue;
    if (scale.max() == 0) return NoBounds(pool);
    return scale.wanted();
  }
  return NoBounds(pool);
}

grpc::ServerUnaryReactor* ExternalScalerImpl::IsActive(grpc::CallbackServerContext* context,
                                                       const ScaledObjectRef* request,
                                                       IsActiveResponse* response) {
  return runtime::RunUnary(executor_, context, request, response,
                           [this](const ScaledObjectRef& target,
                                  const runtime::CallContext&) -> absl::StatusOr<IsActiveResponse> {
                             const absl::StatusOr<int32_t> wanted = Wanted(target);
                             if (!wanted.ok()) return Explained(wanted.status(), "");
                             IsActiveResponse active;
                             active.set_result(*wanted > 0);
                             return active;
                           });
}

grpc::ServerUnaryReactor* ExternalScalerImpl::GetMetricSpec(grpc::CallbackServerContext* context,
                                                            const ScaledObjectRef* request,
                                                            GetMetricSpecResponse* response) {
  return runtime::RunUnary(executor_, context, request, response,
                           [](const ScaledObjectRef&, const runtime::CallContext&)
                               -> absl::StatusOr<GetMetricSpecResponse> { return TheMetric(); });
}

grpc::ServerUnaryReactor* ExternalScalerImpl::GetMetrics(grpc::CallbackServerContext* context,
                                                         const GetMetricsRequest* request,
                                                         GetMetricsResponse* response) {
  return runtime::RunUnary(
      executor_, context, request, response,
      [this](const GetMetricsRequest& asked,
             const runtime::CallContext&) -> absl::StatusOr<GetMetricsResponse> {
        if (!asked.metricname().empty() && asked.metricname() != kMetric) {
          return BadField("metricName", StrCat("\"", asked.metricname().substr(0, 40),
                                               "\" does not exist; it is ", kMetric));
        }
        const absl::StatusOr<int32_t> wanted = Wanted(asked.scaledobjectref());
        if (!wanted.ok()) return Explained(wanted.status(), "");
        GetMetricsResponse answer;
        externalscaler::MetricValue* value = answer.add_metricvalues();
        value->set_metricname(kMetric);
        value->set_metricvalue(*wanted);
        value->set_metricvaluefloat(*wanted);
        return answer;
      });
}

grpc::ServerWriteReactor<IsActiveResponse>* ExternalScalerImpl::StreamIsActive(
    grpc::CallbackServerContext*, const ScaledObjectRef* request) {
  return streams_.Run<IsActiveResponse>(
      [this, target = *request](StreamSink<IsActiveResponse>& sink) {
        return Explained(SendActivity(target, sink), "");
      });
}

absl::Status ExternalScalerImpl::SendActivity(const ScaledObjectRef& target,
                                              StreamSink<IsActiveResponse>& sink) const {
  std::optional<bool> told;
  do {
    const absl::StatusOr<int32_t> wanted = Wanted(target);
    // While the lead changes hands nothing is known, and nothing is said.
    if (!wanted.ok() && !IsTransient(wanted.status())) return wanted.status();
    if (!wanted.ok() || told == (*wanted > 0)) continue;
    IsActiveResponse active;
    active.set_result(*wanted > 0);
    if (!sink.Write(active)) return Gone();
    told = active.result();
  } while (Pause(sink, controller_.Active() != nullptr ? kLook : kStandbyLook));
  return Gone();
}

grpc::ServerWriteReactor<GetMetricSpecResponse>* ExternalScalerImpl::StreamMetricSpec(
    grpc::CallbackServerContext*, const ScaledObjectRef*) {
  return streams_.Run<GetMetricSpecResponse>([](StreamSink<GetMetricSpecResponse>& sink) {
    if (!sink.Write(TheMetric())) return Gone();
    while (Pause(sink, kStandbyLook)) {  // the value never changes
    }
    return Gone();
  });
}

}  // namespace freshet
