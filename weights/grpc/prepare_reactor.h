#ifndef FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_
#define FRESHET_WEIGHTS_GRPC_PREPARE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/runtime/bidi_reactor.h"
#include "weights/delta_codec.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/relay_sender.h"
#include "weights/weight_reception.h"
#include "weights/weight_subscriber.h"

namespace freshet {

class GrpcWeightService;

// Server side of one Prepare call. Receives a version into the inactive buffer, verifies each
// bucket as it arrives, and relays verified bytes to the rest of the chain on a separate thread, so
// that a slow successor does not slow down reception.
class PrepareReactor final : public runtime::BidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public std::enable_shared_from_this<PrepareReactor> {
 public:
  // `host` must outlive the call. Rejects it with `refused` unless that is OK.
  PrepareReactor(GrpcWeightService& host, grpc::CallbackServerContext* context,
                 absl::Status refused);

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
  // Keeps the active version as base_ if it has the size of `manifest`. Returns its content hash;
  // empty: there is none.
  std::string KeepBase(const WeightManifest& manifest);
  // Tells the caller, who may have sent everything already, that bytes arrive. `base`: content hash
  // of base_; only in the first reply.
  void SendAlive(const std::string& base = "");
  // Starts relaying to `job.chain`.
  void StartRelay(RelayJob job);
  void RunRelay(const RelayJob& job);
  // Once all bytes are here, hands the version to the subscriber.
  void CompleteWhenWhole();
  void SetOwnResult(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void SendResult(const std::string& worker, const absl::Status& status);
  // Ends the call if there is nothing left to report.
  void FinishWhenDone() ABSL_LOCKS_EXCLUDED(mu_);

  GrpcWeightService& host_;
  grpc::CallbackServerContext* const context_;
  const absl::Status refused_;
  const std::shared_ptr<EventCount> events_ = std::make_shared<EventCount>();
  std::shared_ptr<WeightSubscriber> subscriber_;
  // Used by the On... methods only:
  absl::Duration silence_timeout_;
  absl::Time alive_at_;
  WeightBytes base_;                   // of the differences that the caller may send; null: none
  std::unique_ptr<DeltaCodec> delta_;  // null if base_ is
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
