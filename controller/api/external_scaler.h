#ifndef FRESHET_CONTROLLER_API_EXTERNAL_SCALER_H_
#define FRESHET_CONTROLLER_API_EXTERNAL_SCALER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/api/stream_pool.h"
#include "controller/jobs/driver/controller.h"
#include "controller/status_page/status_source.h"
#include "externalscaler/externalscaler.grpc.pb.h"
#include "services/runtime/executor.h"

namespace freshet {

// KEDA's external scaler over gRPC: how many rollouts a pool should have. The pool is named by the
// trigger's metadata `pool` ("default" without). One metric, "wanted", of which each replica is
// worth 1, so that its value is the number of replicas; a pool is active when it wants any.
//
// The controller that leads answers from its own decisions; one that stands by asks the leader.
// NOT_FOUND: a pool without bounds; INVALID_ARGUMENT: another metric; UNAVAILABLE: nobody leads, or
// the leader has not looked at the pool yet: KEDA then leaves the number alone. Thread-safe.
class ExternalScalerImpl final : public externalscaler::ExternalScaler::CallbackService {
 public:
  // Between two looks of a stream: of the leader at its own stats, and of others at the leader.
  static constexpr absl::Duration kLook = absl::Milliseconds(500);
  static constexpr absl::Duration kStandbyLook = absl::Seconds(5);
  static constexpr int kMaxStreams = 32;
  static constexpr size_t kMaxWaiting = 64;

  // Both must outlive the service; `cluster` is asked for the cluster where `controller` does not
  // lead.
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

  // Calls that wait for a thread; of kMaxWaiting.
  size_t queued_calls() const { return executor_.queued(); }
  // Of kMaxStreams.
  int open_streams() const { return streams_.open(); }

  // Ends the threads; the server is down.
  void Stop();

 private:
  static constexpr int kThreads = 2;

  // The number that the pool of the trigger should have.
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
