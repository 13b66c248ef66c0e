#ifndef FRESHET_CONTROLLER_API_EXTERNAL_SCALER_H_
#define FRESHET_CONTROLLER_API_EXTERNAL_SCALER_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/api/stream_pool.h"
#include "controller/jobs/driver/controller.h"
#include "controller/status_page/status_source.h"
#include "externalscaler/externalscaler.grpc.pb.h"
#include "services/runtime/executor.h"

namespace freshet {

// KEDA external scaler over gRPC: the number of rollouts that a pool should have. The trigger's
// metadata key `pool` names the pool ("default" if absent). There is one metric, "wanted"; its
// target value is 1 per replica, so its value equals the number of replicas. A pool is active if it
// wants at least one.
//
// The leader answers from its own decisions; a standby asks the leader. NOT_FOUND: the pool has no
// bounds. INVALID_ARGUMENT: unknown metric. UNAVAILABLE: there is no leader, or the leader has not
// evaluated the pool yet; KEDA then keeps the current number. Thread-safe.
class ExternalScalerImpl final : public externalscaler::ExternalScaler::CallbackService {
 public:
  // Polling intervals of a stream: on the leader, and on a standby (which asks the leader).
  static constexpr absl::Duration kLook = absl::Milliseconds(500);
  static constexpr absl::Duration kStandbyLook = absl::Seconds(5);
  static constexpr int kMaxStreams = 32;
  static constexpr size_t kMaxWaiting = 64;

  // Both must outlive the service. `cluster` is asked if `controller` does not lead.
  ExternalScalerImpl(const Controller& controller, StatusSource& cluster)
      : controller_(controller),
        cluster_(cluster),
        executor_(kThreads, kMaxWaiting),
        streams_(kMaxStreams) {}

  grpc::ServerUnaryReactor* IsActive(grpc::CallbackServerContext* context,
                                     const externalscaler::ScaledObjectRef* request,
                                     externalscaler::IsActiveResponse* response) override;
  grpc::ServerWriteReactor<externalscaler::IsActiveResponse>* StreamIsActive(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* request) override;
  grpc::ServerUnaryReactor* GetMetricSpec(grpc::CallbackServerContext* context,
                                          const externalscaler::ScaledObjectRef* request,
                                          externalscaler::GetMetricSpecResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const externalscaler::GetMetricsRequest* request,
                                       externalscaler::GetMetricsResponse* response) override;
  grpc::ServerWriteReactor<externalscaler::GetMetricSpecResponse>* StreamMetricSpec(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* request) override;

  size_t queued_calls() const { return executor_.queued(); }
  int open_streams() const { return streams_.open(); }

  // Stops the threads. The server must be shut down first.
  void Stop();

 private:
  static constexpr int kThreads = 2;

  // The number of rollouts that the trigger's pool should have.
  absl::StatusOr<int32_t> Wanted(const externalscaler::ScaledObjectRef& target) const;
  absl::Status SendActivity(const externalscaler::ScaledObjectRef& target,
                            StreamSink<externalscaler::IsActiveResponse>& sink) const;

  const Controller& controller_;
  StatusSource& cluster_;
  runtime::Executor executor_;
  StreamPool streams_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_EXTERNAL_SCALER_H_
