#include "rollout/service/rollout_process.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "rollout/service/cluster_planes.h"
#include "rollout/service/rollout_metrics.h"
#include "services/base/clock.h"
#include "services/base/str_cat.h"
#include "services/metrics/queue_metrics.h"
#include "services/metrics/weight_sync_metrics.h"
#include "services/runtime/channel_cache.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/worker_role.h"
#include "services/worker/worker_begin.h"

namespace freshet {

int RunRolloutProcess(int argc, char** argv, EngineFactory make_engine, const RolloutHooks& hooks) {
  CLI::App app("generates the samples of a cluster's jobs", "freshet-rollout");
  runtime::WorkerFlags flags;
  runtime::AddWorkerFlags(app, flags);
  if (const std::optional<int> code = runtime::ParseCommandLine(app, argc, argv)) return *code;
  absl::StatusOr<WorkerBegin> begin = BeginWorker(flags, cluster::v1::ROLE_ROLLOUT);
  if (!begin.ok()) {
    std::fprintf(stderr, "freshet-rollout: %s\n", Message(begin.status()).c_str());
    return 2;
  }
  runtime::LogRing log;
  runtime::ShipLog(log);
  const Clock& clock = SystemClock::Get();
  const auto registry = std::make_shared<prometheus::Registry>();
  metrics::WeightSyncMetrics sync(*registry);
  RolloutBoard board(metrics::kKeptJobs);
  RolloutMetrics shown(*registry);
  runtime::ChannelCache channels(runtime::ChannelOptionsOf(flags));
  const auto members = [&channels](cluster::v1::Role role) -> ChannelSource {
    return [&channels, role](const std::string& address) -> std::shared_ptr<grpc::Channel> {
      return channels.Get(address, role).value_or(nullptr);
    };
  };
  const ChannelSource engines = members(cluster::v1::ROLE_ROLLOUT);
  GrpcWeightService service({.host = runtime::HostId()}, engines, clock, &sync);
  ClusterRolloutWeights weights(service, engines, members(cluster::v1::ROLE_TRAINER), clock, &sync,
                                std::hash<std::string>()(begin->agent.identity.incarnation()),
                                flags.time_scale);

  runtime::WorkerRole* worker = nullptr;
  RolloutContext context;
  context.open_store =
      [&](const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    absl::StatusOr<std::unique_ptr<TrajectoryStore>> store = begin->datastore.open_store(job);
    if (!store.ok() || !hooks.wrap_store) return store;
    return hooks.wrap_store(*std::move(store));
  };
  context.make_engine = std::move(make_engine);
  context.weights = &weights;
  context.open_environments =
      [&](const job::v1::JobSpec& spec) -> absl::StatusOr<std::unique_ptr<EnvironmentPool>> {
    GrpcEnvironmentClientOptions options;
    options.step_timeout = absl::Milliseconds(spec.environment().step_timeout_ms());
    options.avoid_failed *= flags.time_scale;
    options.avoid_full *= flags.time_scale;
    // An address of the job's own is no member's.
    const bool own = !spec.environment().address().empty();
    return std::make_unique<ClusterEnvironments>(
        [&channels, own](const std::string& address) {
          return own ? channels.Get(address) : channels.Get(address, cluster::v1::ROLE_ENV);
        },
        clock, options, spec.environment().address());
  };
  context.fetch_rows = [&](const cluster::v1::FetchRowsRequest& request) {
    return worker->agent()->FetchRows(request);
  };
  context.report_evaluation = [&](cluster::v1::ReportEvaluationRequest request) {
    return worker->agent()->ReportEvaluation(std::move(request));
  };
  context.clock = &clock;
  context.board = &board;
  context.pull_after *= flags.time_scale;
  context.time_scale = flags.time_scale;
  runtime::WorkerRole role(
      {begin->agent, /*exclusive=*/true},
      [&](const cluster::v1::Assign& assign, const std::string& name, std::stop_token) {
        return RolloutWork::Create(assign, name, context);
      },
      {&service}, &log);
  worker = &role;
  runtime::ServeOptions serve;
  serve.role = "rollout";
  serve.endpoint = flags.endpoint;
  serve.version = begin->agent.identity.version();
  serve.registry = registry;
  metrics::QueueMetrics queues(*registry);
  queues.Watch("weight_calls", GrpcWeightService::kMaxQueuedCalls,
               [&service] { return static_cast<int64_t>(service.queued_calls()); });
  queues.Watch("weight_prepares", service.max_streams(),
               [&service] { return int64_t{service.open_prepares()}; });
  queues.Watch("weight_pulls", service.max_streams(),
               [&service] { return int64_t{service.open_pulls()}; });
  serve.before_scrape = [&] {
    shown.Show(board.Take());
    queues.Refresh();
  };
  return runtime::Serve(role, serve);
}

}  // namespace freshet
