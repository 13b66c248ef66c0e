#ifndef FRESHET_WEIGHTS_GRPC_WEIGHT_SERVICE_H_
#define FRESHET_WEIGHTS_GRPC_WEIGHT_SERVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "services/runtime/executor.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/prepare_reactor.h"
#include "weights/manifest.h"
#include "weights/weight_buffer_pool.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

struct WeightServiceOptions {
  std::string host;     // runtime::HostId(): identifies processes that can share memory
  int max_streams = 8;  // maximum concurrent Prepare calls, and Pull calls
  absl::Duration max_call = absl::Minutes(30);  // longest deadline that callers may set
};

// WeightService of one process for all its jobs: an engine receives versions into its subscriber,
// and every member serves its newest committed version. channels, clock and observer must outlive
// it; shut the server down before destroying it. Thread-safe.
class GrpcWeightService final : public weights::v1::WeightService::WithRawCallbackMethod_Prepare<
                                    weights::v1::WeightService::WithCallbackMethod_PrepareShared<
                                        weights::v1::WeightService::WithCallbackMethod_Activate<
                                            weights::v1::WeightService::WithRawCallbackMethod_Pull<
                                                weights::v1::WeightService::Service>>>>,
                                private PrepareHost {
 public:
  static constexpr size_t kMaxQueuedCalls = 64;

  // `observer` may be null.
  GrpcWeightService(WeightServiceOptions options, ChannelSource channels, const Clock& clock,
                    WeightSyncObserver* observer);
  ~GrpcWeightService() override;

  // Starts serving `job`, replacing any earlier endpoint of that job.
  void Serve(const std::string& job, WeightEndpoint endpoint) ABSL_LOCKS_EXCLUDED(mu_);
  // Stops serving the job. Ongoing calls end with ABORTED.
  void Forget(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  // Unary calls waiting for a thread, at most kMaxQueuedCalls.
  size_t queued_calls() const { return calls_.queued(); }
  // Open Prepare and Pull calls, at most max_streams() each. Includes calls that are being
  // rejected.
  int open_prepares() const ABSL_LOCKS_EXCLUDED(mu_);
  int open_pulls() const;
  int max_streams() const { return options_.max_streams; }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Prepare(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* PrepareShared(grpc::CallbackServerContext* context,
                                          const weights::v1::PrepareSharedRequest* request,
                                          weights::v1::PrepareReply* reply) override;
  grpc::ServerUnaryReactor* Activate(grpc::CallbackServerContext* context,
                                     const weights::v1::ActivateRequest* request,
                                     weights::v1::ActivateReply* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;

 private:
  // PrepareHost:
  absl::StatusOr<WeightEndpoint> Find(const std::string& job) override ABSL_LOCKS_EXCLUDED(mu_);
  void TakeOver(const std::string& job, std::shared_ptr<PrepareReactor> reactor) override
      ABSL_LOCKS_EXCLUDED(mu_);
  bool Submit(std::function<void()> work) override { return relays_.TrySubmit(std::move(work)); }
  void Ended() override ABSL_LOCKS_EXCLUDED(mu_);
  WeightBufferPool& pool() override { return pool_; }
  const ChannelSource& channels() const override { return channels_; }
  const Clock& clock() const override { return clock_; }
  WeightSyncObserver* observer() override { return observer_; }
  absl::Duration max_call() const override { return options_.max_call; }

  absl::Status TakeShared(const weights::v1::PrepareSharedRequest& request);
  absl::StatusOr<CommittedWeights> FindCommitted(const grpc::ByteBuffer& request);

  const WeightServiceOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  WeightBufferPool pool_;
  mutable Mutex mu_;
  std::map<std::string, WeightEndpoint> endpoints_ ABSL_GUARDED_BY(mu_);
  // The call that brings a job's next version.
  std::map<std::string, std::weak_ptr<PrepareReactor>> current_ ABSL_GUARDED_BY(mu_);
  int prepares_ ABSL_GUARDED_BY(mu_) = 0;
  // Shared because streams that end after this object still decrement it.
  struct Pulls;
  const std::shared_ptr<Pulls> pulls_;
  runtime::Executor relays_;  // one thread per relaying stream
  runtime::Executor calls_;   // unary calls
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_SERVICE_H_
