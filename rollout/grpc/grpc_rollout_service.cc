#include "rollout/grpc/grpc_rollout_service.h"

#include <atomic>
#include <memory>
#include <random>
#include <utility>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/grpc/generate_call.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

constexpr absl::Duration kDefaultPause = absl::Minutes(1);
constexpr absl::Duration kLongestPause = absl::Hours(1);

absl::Status NoJob() { return absl::UnavailableError("no job runs on this rollout"); }

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

absl::StatusOr<absl::Duration> PauseDuration(const rollout::v1::PauseRequest& request) {
  if (!request.has_duration()) return kDefaultPause;
  const absl::Duration duration = FromDuration(request.duration());
  if (duration > absl::ZeroDuration() && duration <= kLongestPause) return duration;
  return InvalidArgument("duration: want more than 0 and at most ",
                         absl::FormatDuration(kLongestPause), ", got ",
                         absl::FormatDuration(duration));
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(runtime::StatusToGrpc(status));
  return reactor;
}

}  // namespace

absl::Status GrpcRolloutService::WithTarget(
    const std::string& job,
    const std::function<absl::Status(RolloutTarget& target, int64_t number)>& use) {
  absl::Status status = NoJob();
  target_.With([&](RolloutTarget& target, int64_t number) {
    status =
        job.empty() || job == target.job
            ? use(target, number)
            : FailedPrecondition("job_id: job ", target.job, " runs on this rollout, not ", job);
  });
  return status;
}

void GrpcRolloutService::StartDrain(absl::Time finish_by) {
  target_.With(
      [finish_by](RolloutTarget& target, int64_t) { target.queue->StartDrain(finish_by); });
}

grpc::ServerWriteReactor<rollout::v1::GenerateReply>* GrpcRolloutService::Generate(
    grpc::CallbackServerContext* /*context*/, const rollout::v1::GenerateRequest* request) {
  const std::shared_ptr<GenerateCall> call = GenerateCall::Open(max_unread_tokens_);
  // Tokens may come before Submit has returned the id.
  const auto id = std::make_shared<std::atomic<int64_t>>(0);
  int64_t serving = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> eos_ids;
  absl::Status status =
      WithTarget(request->job_id(), [&](const RolloutTarget& target, int64_t number) {
        serving = number;
        tokenizer = target.tokenizer;
        eos_ids = target.eos_ids;
        return absl::OkStatus();
      });
  // The target is free meanwhile: tokenizing a long prompt takes time.
  absl::StatusOr<GenerationRequest> generation = GenerationRequest();
  if (status.ok()) {
    generation = ToGenerationRequest(*request, *tokenizer, eos_ids, RandomSeed());
    status = generation.status();
  }
  if (status.ok()) {
    status = NoJob();
    target_.WithSame(serving, [&](RolloutTarget& target) {
      QueuedRequest queued;
      queued.generation = *std::move(generation);
      queued.on_token = [call, id, queue = target.queue](const GeneratedToken& token) {
        if (!call->Add(token) && *id != 0) queue->Cancel(*id);
      };
      queued.on_end = [call](const absl::Status& ended) { call->End(ended); };
      const absl::StatusOr<int64_t> submitted = target.queue->Submit(std::move(queued));
      status = submitted.status();
      if (submitted.ok()) *id = *submitted;
    });
  }
  if (!status.ok()) {
    call->End(status);
  } else {
    call->OnGone([this, serving, submitted = id->load()] {
      target_.WithSame(serving,
                       [submitted](RolloutTarget& same) { same.queue->Cancel(submitted); });
    });
  }
  return call.get();
}

grpc::ServerUnaryReactor* GrpcRolloutService::Pause(grpc::CallbackServerContext* context,
                                                    const rollout::v1::PauseRequest* request,
                                                    rollout::v1::PauseReply*) {
  return Answer(context,
                WithTarget(request->job_id(), [&](RolloutTarget& target, int64_t) -> absl::Status {
                  FRESHET_ASSIGN_OR_RETURN(const absl::Duration duration, PauseDuration(*request));
                  target.pause_engine_until(clock_.Now() + duration);
                  return absl::OkStatus();
                }));
}

grpc::ServerUnaryReactor* GrpcRolloutService::Resume(grpc::CallbackServerContext* context,
                                                     const rollout::v1::ResumeRequest* request,
                                                     rollout::v1::ResumeReply*) {
  return Answer(context, WithTarget(request->job_id(), [&](RolloutTarget& target, int64_t) {
                  target.pause_engine_until(absl::UnixEpoch());
                  return absl::OkStatus();
                }));
}

grpc::ServerUnaryReactor* GrpcRolloutService::GetStats(grpc::CallbackServerContext* context,
                                                       const rollout::v1::GetStatsRequest* request,
                                                       rollout::v1::GetStatsReply* reply) {
  return Answer(context, WithTarget(request->job_id(), [&](RolloutTarget& target, int64_t) {
                  const QueueStats stats = target.queue->stats();
                  reply->set_job_id(target.job);
                  reply->set_draining(target.queue->draining());
                  reply->set_requests_waiting(stats.waiting);
                  reply->set_requests_running(stats.running);
                  reply->set_running_sequences(stats.engine.running_sequences);
                  reply->set_capacity_sequences(stats.engine.capacity_sequences);
                  reply->set_cache_blocks(stats.engine.cache_blocks);
                  reply->set_cache_blocks_free(stats.engine.cache_blocks_free);
                  reply->set_tokens_generated(stats.engine.tokens_generated);
                  target.fill_stats(*reply);
                  return absl::OkStatus();
                }));
}

}  // namespace freshet
