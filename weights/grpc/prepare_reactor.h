#ifndef FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_
#define FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "services/runtime/bidi_reactor.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/relay_sender.h"
#include "weights/manifest.h"
#include "weights/weight_buffer_pool.h"
#include "weights/weight_reception.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

// This process's role in the weight plane of one job.
struct WeightEndpoint {
  std::shared_ptr<WeightSubscriber> subscriber;  // null: does not receive weights (trainer)
  // Returns the newest committed version. Empty: uses the subscriber's.
  std::function<std::optional<CommittedWeights>()> committed;
  WeightLimits limits;
};

class PrepareReactor;

// What a Prepare call needs from its service, which must outlive the call.
class PrepareHost {
 public:
  virtual ~PrepareHost() = default;
  // NOT_FOUND: this process does not serve the job.
  virtual absl::StatusOr<WeightEndpoint> Find(const std::string& job) = 0;
  // Makes `reactor` the call that brings the job's next version; aborts the previous one. Does not
  // compare the versions that the calls claim, because a claim may be false.
  virtual void TakeOver(const std::string& job, std::shared_ptr<PrepareReactor> reactor) = 0;
  // Runs work that may block. Returns false if no thread is available.
  virtual bool Submit(std::function<void()> work) = 0;
  virtual void Ended() = 0;
  virtual WeightBufferPool& pool() = 0;
  virtual const ChannelSource& channels() const = 0;
  virtual const Clock& clock() const = 0;
  virtual WeightSyncObserver* observer() = 0;
  virtual absl::Duration max_call() const = 0;
};

// Server side of one Prepare call. Receives a version into the inactive buffer, verifies each
// bucket as it arrives, and relays verified bytes to the rest of the chain on a separate thread, so
// that a slow successor does not slow down reception.
class PrepareReactor final : public runtime::BidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public std::enable_shared_from_this<PrepareReactor> {
 public:
  // Rejects the call with `refused` unless it is OK.
  PrepareReactor(PrepareHost& host, grpc::CallbackServerContext* context, absl::Status refused);

  // Ends the call with ABORTED and discards incomplete data. Thread-safe.
  void Abort(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void OnOpen() override;
  Reading OnMessage(const grpc::ByteBuffer& message) override;
  void OnClientDone() override;
  void OnEnd() override;

  // Reads the header. OK also if the version is refused or held: that is reported as a result.
  absl::Status OnHeader(const grpc::ByteBuffer& message);
  absl::Status OnChunk(const grpc::ByteBuffer& message);
  // Starts relaying to `job.chain`.
  void StartRelay(RelayJob job);
  void RunRelay(const RelayJob& job);
  // Once all bytes are here, hands the version to the subscriber.
  void CompleteWhenWhole();
  void SetOwnResult(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void SendResult(const std::string& worker, const absl::Status& status);
  // Ends the call if there is nothing left to report.
  void FinishWhenDone() ABSL_LOCKS_EXCLUDED(mu_);

  PrepareHost& host_;
  grpc::CallbackServerContext* const context_;
  const absl::Status refused_;
  const std::shared_ptr<EventCount> events_ = std::make_shared<EventCount>();
  std::shared_ptr<WeightSubscriber> subscriber_;
  Mutex mu_;
  std::shared_ptr<WeightReception> reception_ ABSL_GUARDED_BY(mu_);
  bool own_known_ ABSL_GUARDED_BY(mu_) = false;
  // Set later than own_known_: a relay that ends in between must not end the call before the result
  // is queued.
  bool own_sent_ ABSL_GUARDED_BY(mu_) = false;
  bool relaying_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_
