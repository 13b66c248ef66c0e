#include "rollout/service/rollout_process.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/command_line.h"
#include "rollout/service/cluster_planes.h"
#include "rollout/service/engine_choice.h"
#include "rollout/service/rollout_metrics.h"
#include "services/runtime/process_identity.h"
#include "weights/grpc/weight_sync_metrics.h"

namespace freshet {

int RunRolloutProcess(int argc, char** argv, EngineFactory make_native, StoreWrapper wrap_store) {
  CommandLine app("generates the samples of a cluster's jobs", "freshet-rollout");
  runtime::WorkerFlags flags;
  runtime::AddWorkerFlags(app, flags);
  EngineFlags engine;
  AddEngineFlags(app, engine);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  flags.engine = engine.kind;
  const auto process =
      WorkerProcess::Create(flags, cluster::v1::ROLE_ROLLOUT, std::move(wrap_store));
  if (process == nullptr) return 2;

  const Clock& clock = SystemClock::Get();
  metrics::WeightSyncMetrics sync(process->registry());
  RolloutStatsByJob stats_by_job(metrics::kKeptJobs);
  RolloutMetrics shown(process->registry());
  runtime::ChannelCache& channels = process->channels();
  const ChannelSource engines = process->Members(cluster::v1::ROLE_ROLLOUT);
  GrpcWeightService service({.host = runtime::HostId()}, engines, clock, &sync);
  WatchQueues(service, process->queues());
  ClusterRolloutWeights weights(service, engines, process->Members(cluster::v1::ROLE_TRAINER),
                                clock, &sync, std::hash<std::string>()(process->incarnation()),
                                flags.time_scale);
  RolloutContext context;
  context.open_store = process->open_store();
  engine.time_scale = flags.time_scale;
  context.make_engine = ChooseEngine(engine, std::move(make_native), clock);
  context.weights = &weights;
  context.open_environments =
      [&](const job::v1::JobSpec& spec) -> absl::StatusOr<std::unique_ptr<EnvironmentPool>> {
    GrpcEnvironmentClientOptions options;
    options.step_timeout = absl::Milliseconds(spec.environment().step_timeout_ms());
    options.avoid_failed *= flags.time_scale;
    options.avoid_full *= flags.time_scale;
    // An address in the job is not a cluster member, so no member name is expected.
    const bool own = !spec.environment().address().empty();
    return std::make_unique<ClusterEnvironments>(
        [&channels, own](const std::string& address) {
          return own ? channels.Get(address) : channels.Get(address, cluster::v1::ROLE_ENV);
        },
        clock, options, spec.environment().address());
  };
  context.clock = &clock;
  context.stats_by_job = &stats_by_job;
  context.pull_after *= flags.time_scale;
  context.time_scale = flags.time_scale;
  return process->Serve(
      /*exclusive=*/true,
      [&](const cluster::v1::Assign& assign, const std::string& worker,
          runtime::ControllerCalls& controller,
          std::stop_token) { return RolloutWork::Create(assign, worker, controller, context); },
      {&service}, [&] { shown.Show(stats_by_job.Take()); });
}

}  // namespace freshet
