#ifndef FRESHET_ROLLOUT_ENVIRONMENT_GRPC_ENVIRONMENT_STREAM_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_GRPC_ENVIRONMENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/env/v1/env_service.grpc.pb.h"
#include "rollout/environment/environment_client.h"

namespace freshet {

// Of EnvService. Answers are parsed by the stream, because gRPC does not tell one that cannot be
// parsed from the end of a stream.
using EnvironmentStub = grpc::TemplatedGenericStub<env::v1::EpisodeRequest, grpc::ByteBuffer>;

// Client side of one Episode stream: one request at a time, each answered once. Thread-safe. Keeps
// itself alive until the stream has ended.
class EnvironmentStream final
    : public grpc::ClientBidiReactor<env::v1::EpisodeRequest, grpc::ByteBuffer> {
 public:
  // Called from a gRPC thread with the answer to the last request, or an error.
  using OnAnswer = std::function<void(absl::StatusOr<EpisodeAnswer>)>;

  // Called once from a gRPC thread, after the stream has ended and dropped its reference to itself.
  using OnEnd = std::function<void()>;

  // Opens the stream, with the header `traceparent` unless it is "", and sends `first`. `timeout`
  // is the deadline of the whole stream.
  static std::shared_ptr<EnvironmentStream> Start(std::shared_ptr<EnvironmentStub> stub,
                                                  env::v1::EpisodeRequest first,
                                                  const std::string& traceparent,
                                                  absl::Duration timeout, OnAnswer on_answer,
                                                  OnEnd on_end);

  // Sends a request. The previous one must have been answered. If the stream has ended, its status
  // is returned as the answer from within this call.
  void Send(env::v1::EpisodeRequest request) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream; no further answer is delivered.
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  // Like End, but cancels the call.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  EnvironmentStream(std::shared_ptr<EnvironmentStub> stub, OnAnswer on_answer, OnEnd on_end)
      : stub_(std::move(stub)), on_end_(std::move(on_end)), on_answer_(std::move(on_answer)) {}
  void Write(env::v1::EpisodeRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteClose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<EnvironmentStub> stub_;
  const OnEnd on_end_;
  grpc::ClientContext context_;
  std::shared_ptr<EnvironmentStream> self_;  // until OnDone
  grpc::ByteBuffer incoming_;                // used by the read in progress

  Mutex mu_;
  OnAnswer on_answer_ ABSL_GUARDED_BY(mu_);  // empty after End
  env::v1::EpisodeRequest outgoing_ ABSL_GUARDED_BY(mu_);
  std::optional<env::v1::EpisodeRequest> queued_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // for an answer
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // close after the write in progress
  bool held_ ABSL_GUARDED_BY(mu_) = true;      // the reactor may be used from outside
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_GRPC_ENVIRONMENT_STREAM_H_
