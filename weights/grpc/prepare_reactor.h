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

// This process's part in the weight plane of one job.
struct WeightEndpoint {
  std::shared_ptr<WeightSubscriber> subscriber;  // null: takes no weights, as the trainer
  // The newest committed version; when empty, the subscriber's.
  std::function<std::optional<CommittedWeights>()> committed;
  WeightLimits limits;
};

class PrepareReactor;

// What a Prepare call needs of its service, which outlives it.
class PrepareHost {
 public:
  virtual ~PrepareHost() = default;
  // NOT_FOUND: no such job here.
  virtual absl::StatusOr<WeightEndpoint> Find(const std::string& job) = 0;
  // `reactor` brings the job's next version; aborts a former call that does. The versions that the
  // calls claim are not compared: a claim may be false.
  virtual void TakeOver(const std::string& job, std::shared_ptr<PrepareReactor> reactor) = 0;
  // Runs work that may block; false when there is no thread for it.
  virtual bool Submit(std::function<void()> work) = 0;
  // A call has ended.
  virtual void Ended() = 0;
  virtual WeightBufferPool& pool() = 0;
  virtual const ChannelSource& channels() const = 0;
  virtual const Clock& clock() const = 0;
  virtual WeightSyncObserver* observer() = 0;
  virtual absl::Duration max_call() const = 0;
};

// Server side of one Prepare call: takes a version into the inactive buffer, checking each bucket
// as it arrives, and passes verified bytes on to the rest of the chain from a thread of its own, so
// that a slow successor never slows down what arrives here.
class PrepareReactor final : public runtime::BidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public std::enable_shared_from_this<PrepareReactor> {
 public:
  // The call is refused with `refused` when that is not OK.
  PrepareReactor(PrepareHost& host, grpc::CallbackServerContext* context, absl::Status refused);

  // Ends the call with ABORTED; nothing that is incomplete is kept. Thread-safe.
  void Abort(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void OnOpen() override;
  Reading OnMessage(const grpc::ByteBuffer& message) override;
  void OnClientDone() override;
  void OnEnd() override;

  // Reads the header; OK also when the version is refused or held, which is a result.
  absl::Status OnHeader(const grpc::ByteBuffer& message);
  absl::Status OnChunk(const grpc::ByteBuffer& message);
  // Starts passing on to `job.chain`.
  void StartRelay(RelayJob job);
  void RunRelay(const RelayJob& job);
  // When all bytes are here, hands the version to the subscriber.
  void CompleteWhenWhole();
  void SetOwnResult(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void SendResult(const std::string& worker, const absl::Status& status);
  // Ends the call when nothing is left to tell.
  void FinishWhenDone() ABSL_LOCKS_EXCLUDED(mu_);

  PrepareHost& host_;
  grpc::CallbackServerContext* const context_;
  const absl::Status refused_;
  const std::shared_ptr<EventCount> events_ = std::make_shared<EventCount>();
  std::shared_ptr<WeightSubscriber> subscriber_;
  Mutex mu_;
  std::shared_ptr<WeightReception> reception_ ABSL_GUARDED_BY(mu_);
  bool own_known_ ABSL_GUARDED_BY(mu_) = false;
  // Later than own_known_: the relay, which may end in between, must not end the call before the
  // result is queued.
  bool own_sent_ ABSL_GUARDED_BY(mu_) = false;
  bool relaying_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_
