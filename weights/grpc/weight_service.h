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
#include "collective/communicator_backend.h"
#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"
#include "weights/broadcast_receiver.h"
#include "weights/cuda/device_copy_opener.h"
#include "weights/grpc/channel_source.h"
#include "weights/manifest.h"
#include "weights/shm/memory_file_reader.h"
#include "weights/transfer_time.h"
#include "weights/weight_buffer_pool.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

class PrepareReactor;

// This process's role in the weight plane of one job.
struct WeightEndpoint {
  std::shared_ptr<WeightSubscriber> subscriber;  // null: does not receive weights (trainer)
  // Returns the newest committed version. Empty: uses the subscriber's.
  std::function<std::optional<CommittedWeights>()> committed;
  WeightLimits limits;
  std::string broadcast_backend = {};  // "nccl" or "gloo"; "": takes part in no broadcasts
  std::shared_ptr<DeviceCopyOpener> device_copies = nullptr;  // null: opens none
};

struct WeightServiceOptions {
  std::string host;  // runtime::HostId(): identifies processes that can share memory
  // Maximum concurrent Prepare calls, Pull calls, and broadcasts.
  int max_streams = 8;
  // Longest deadline that callers may set: kMaxTransferTime and a margin.
  absl::Duration max_call = kMaxTransferTime + absl::Minutes(5);
  OpenCommunicatorBackend open_backend = {};  // for broadcasts; empty: none
};

// WeightService of one process for all its jobs: an engine receives versions into its subscriber,
// and every member serves its newest committed version. channels, clock and observer must outlive
// it; shut the server down before destroying it. Thread-safe.
class GrpcWeightService final
    : public weights::v1::WeightService::WithRawCallbackMethod_Prepare<
          weights::v1::WeightService::WithCallbackMethod_PrepareShared<
              weights::v1::WeightService::WithCallbackMethod_PrepareBroadcast<
                  weights::v1::WeightService::WithCallbackMethod_Activate<
                      weights::v1::WeightService::WithRawCallbackMethod_Pull<
                          weights::v1::WeightService::Service>>>>> {
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

  // Broadcasts waiting for a thread, at most max_streams().
  size_t queued_broadcasts() const { return broadcasts_.queued(); }
  // Other unary calls waiting for a thread, at most kMaxQueuedCalls.
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
  grpc::ServerUnaryReactor* PrepareBroadcast(grpc::CallbackServerContext* context,
                                             const weights::v1::PrepareBroadcastRequest* request,
                                             weights::v1::PrepareBroadcastReply* reply) override;
  grpc::ServerUnaryReactor* Activate(grpc::CallbackServerContext* context,
                                     const weights::v1::ActivateRequest* request,
                                     weights::v1::ActivateReply* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;

 private:
  friend class PrepareReactor;

  struct Served {
    WeightEndpoint endpoint;
    std::shared_ptr<BroadcastReceiver> receiver;  // null: takes part in no broadcasts
    std::shared_ptr<MemoryFileReader> files;
  };

  // NOT_FOUND: this process does not serve the job.
  absl::StatusOr<Served> FindServed(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<WeightEndpoint> Find(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes `reactor` the call that brings the job's next version; aborts the previous one. Does not
  // compare the versions that the calls claim, because a claim may be false.
  void TakeOver(const std::string& job, std::shared_ptr<PrepareReactor> reactor)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A Prepare call has ended.
  void Ended() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<weights::v1::PrepareReply> TakeShared(
      const weights::v1::PrepareSharedRequest& request);
  absl::StatusOr<BroadcastReceiver::Reply> TakeBroadcast(
      const weights::v1::PrepareBroadcastRequest& request, const runtime::CallContext& call);
  absl::StatusOr<CommittedWeights> FindCommitted(const grpc::ByteBuffer& request);

  const WeightServiceOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  WeightBufferPool pool_;
  mutable Mutex mu_;
  std::map<std::string, Served> jobs_ ABSL_GUARDED_BY(mu_);
  // The call that brings a job's next version.
  std::map<std::string, std::weak_ptr<PrepareReactor>> current_ ABSL_GUARDED_BY(mu_);
  int prepares_ ABSL_GUARDED_BY(mu_) = 0;
  // Shared because streams that end after this object still decrement it.
  struct Pulls;
  const std::shared_ptr<Pulls> pulls_;
  runtime::Executor relays_;      // one thread per relaying stream
  runtime::Executor broadcasts_;  // one thread per broadcast
  runtime::Executor calls_;       // other unary calls
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_SERVICE_H_
