#ifndef FRESHET_ROLLOUT_GRPC_GRPC_ROLLOUT_SERVICE_H_
#define FRESHET_ROLLOUT_GRPC_GRPC_ROLLOUT_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/attached.h"
#include "base/clock.h"
#include "freshet/rollout/v1/rollout_service.grpc.pb.h"
#include "rollout/generation/generation_queue.h"
#include "text/tokenizer.h"

namespace freshet {

// The work of a job as calls see it.
struct RolloutTarget {
  std::string job;
  GenerationQueue* queue = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer;  // calls use it after the job's end
  std::vector<int32_t> eos_ids;
  std::function<void(absl::Time end)> pause_engine_until;  // RolloutWorker::PauseEngineUntil
  // Sets policy, paused and sessions.
  std::function<void(rollout::v1::GetStatsReply&)> fill_stats;
};

// RolloutService of a process. Clock must outlive it; shut the server down before destroying it.
// Thread-safe.
class GrpcRolloutService final : public rollout::v1::RolloutService::CallbackService {
 public:
  static constexpr int kMaxUnreadTokens = 4096;

  explicit GrpcRolloutService(const Clock& clock, int max_unread_tokens = kMaxUnreadTokens)
      : clock_(clock), max_unread_tokens_(max_unread_tokens) {}

  // Serves `target` until Detach has returned. Its queue ends the calls.
  void Attach(RolloutTarget& target) { target_.Attach(target); }
  void Detach(const RolloutTarget& target) { target_.Detach(target); }
  // Refuses new requests of the queue and gives the others until `finish_by`.
  void StartDrain(absl::Time finish_by);

  grpc::ServerWriteReactor<rollout::v1::GenerateReply>* Generate(
      grpc::CallbackServerContext* context, const rollout::v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const rollout::v1::PauseRequest* request,
                                  rollout::v1::PauseReply* reply) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const rollout::v1::ResumeRequest* request,
                                   rollout::v1::ResumeReply* reply) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const rollout::v1::GetStatsRequest* request,
                                     rollout::v1::GetStatsReply* reply) override;

 private:
  // Calls `use` with the target of `job` ("": any) and its number.
  absl::Status WithTarget(
      const std::string& job,
      const std::function<absl::Status(RolloutTarget& target, int64_t number)>& use);

  const Clock& clock_;
  const int max_unread_tokens_;
  Attached<RolloutTarget> target_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_GRPC_GRPC_ROLLOUT_SERVICE_H_
