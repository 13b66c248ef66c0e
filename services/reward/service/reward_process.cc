#include "services/reward/service/reward_process.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/str_cat.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/service/grpc_scorer.h"
#include "services/reward/service/http_scorer.h"
#include "services/reward/service/reward_metrics.h"
#include "services/reward/service/reward_service.h"
#include "services/reward/service/reward_work.h"
#include "services/runtime/reward_flags.h"

namespace freshet {
namespace {

constexpr size_t kCachedScores = 65'536;

}  // namespace

int RunRewardProcess(int argc, char** argv, StoreWrapper wrap_store) {
  CommandLine app("scores the samples of a cluster's jobs", "freshet-reward");
  runtime::WorkerFlags flags;
  runtime::AddWorkerFlags(app, flags);
  runtime::RewardFlags offered;
  runtime::AddRewardFlags(app, offered);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  const auto process =
      WorkerProcess::Create(flags, cluster::v1::ROLE_REWARD, std::move(wrap_store));
  if (process == nullptr) return 2;

  RewardMetrics shown(process->registry());
  const auto answers = std::make_shared<ScoreCache>(kCachedScores);
  RewardStatsByJob stats_by_job(metrics::kKeptJobs);
  RewardContext context;
  context.open_store = process->open_store();
  context.time_scale = flags.time_scale;
  context.services.remote =
      GrpcScorers([&](const std::string& address) { return process->channels().Get(address); },
                  offered.python_rewards, answers);
  absl::StatusOr<HttpScorerFactory> sandbox = SandboxScorers(offered.sandbox, answers);
  absl::StatusOr<HttpScorerFactory> judge = JudgeScorers(offered.judge, answers);
  absl::StatusOr<HttpScorerFactory> reward_model =
      RewardModelScorers(offered.reward_model, answers);
  for (const auto* made : {&sandbox, &judge, &reward_model}) {
    if (made->ok()) continue;
    std::fprintf(stderr, "freshet-reward: %s\n", Message(made->status()).c_str());
    return kExitCommandLine;
  }
  context.services.sandbox = *std::move(sandbox);
  context.services.judge = *std::move(judge);
  context.services.reward_model = *std::move(reward_model);
  context.observers = &shown;
  context.stats_by_job = &stats_by_job;
  const RewardServiceOptions options;
  RewardService service(options, shown.Of(ScoreObservers::kCalls));
  shown.WatchCache("services", *answers);
  shown.WatchCache("calls", service.cache());
  process->queues().Watch("score_calls", static_cast<int64_t>(options.max_queued),
                          [&] { return static_cast<int64_t>(service.queued()); });
  return process->Serve(
      /*exclusive=*/false,
      [&](const cluster::v1::Assign& assign, const std::string& worker, runtime::ControllerCalls&,
          std::stop_token) { return RewardWork::Create(assign, worker, context); },
      {&service}, [&] { shown.Refresh(stats_by_job.Take()); });
}

}  // namespace freshet
