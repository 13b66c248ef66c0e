#include "rollout/service/rollout_process.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/grpc/grpc_rollout_service.h"
#include "rollout/openai/endpoint_flags.h"
#include "rollout/openai/endpoint_metrics.h"
#include "rollout/service/cluster_planes.h"
#include "rollout/service/engine_choice.h"
#include "rollout/service/rollout_metrics.h"
#include "services/runtime/gpu_memory_metrics.h"
#include "services/runtime/process_identity.h"
#include "weights/grpc/weight_sync_metrics.h"

namespace freshet {
namespace {

// Of the time to drain: for requests in progress, before the rest is ended.
constexpr double kFinishShare = 0.8;

// Null if the flags turn it off.
absl::StatusOr<std::unique_ptr<openai::EndpointPort>> StartPort(
    const openai::EndpointFlags& flags, const runtime::EndpointOptions& process) {
  FRESHET_ASSIGN_OR_RETURN(std::optional<openai::EndpointPortOptions> options,
                           openai::MakePortOptions(flags, process));
  if (!options.has_value()) return nullptr;
  FRESHET_ASSIGN_OR_RETURN(auto port, openai::EndpointPort::Start(*std::move(options)));
  FRESHET_LOG(Info) << "event=openai_endpoint url=" << port->base_url();
  return port;
}

}  // namespace

int RunRolloutProcess(int argc, char** argv, EngineFactory make_native,
                      OpenCommunicatorBackend open_backend, StoreWrapper wrap_store,
                      GpuMemoryReader read_gpus, OpenDeviceMemory open_gpu) {
  CommandLine app("generates the samples of a cluster's jobs", "freshet-rollout");
  runtime::WorkerFlags flags;
  openai::EndpointFlags openai_flags;
  runtime::AddWorkerFlags(app, flags);
  EngineFlags engine;
  AddEngineFlags(app, engine);
  runtime::AddUsersFlag(app, flags.endpoint);
  openai::AddEndpointFlags(app, openai_flags);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  flags.engine = engine.kind;
  auto transfer = OpenEngineTransfer(engine, open_backend);
  if (!transfer.ok()) {
    std::fprintf(stderr, "freshet-rollout: %s\n", Message(transfer.status()).c_str());
    return 2;
  }
  const auto process =
      WorkerProcess::Create(flags, cluster::v1::ROLE_ROLLOUT, std::move(wrap_store));
  if (process == nullptr) return 2;

  auto port = StartPort(openai_flags, flags.endpoint);
  if (!port.ok()) {
    std::fprintf(stderr, "freshet-rollout: %s\n", Message(port.status()).c_str());
    return 2;
  }

  const Clock& clock = SystemClock::Get();
  GrpcRolloutService calls(clock);
  EndpointMetrics endpoint_metrics(process->registry());
  metrics::WeightSyncMetrics sync(process->registry());
  RolloutStatsByJob stats_by_job(metrics::kKeptJobs);
  RolloutMetrics shown(process->registry());
  metrics::GpuMemoryMetrics gpus(process->registry(), std::move(read_gpus));
  runtime::ChannelCache& channels = process->channels();
  const ChannelSource engines = process->Members(cluster::v1::ROLE_ROLLOUT);
  GrpcWeightService service({.host = runtime::HostId(), .open_backend = std::move(open_backend)},
                            engines, clock, &sync);
  WatchQueues(service, process->queues());
  ClusterRolloutWeights weights(service, engines, process->Members(cluster::v1::ROLE_TRAINER),
                                clock, &sync, std::hash<std::string>()(process->incarnation()),
                                flags.time_scale, flags.site, std::move(open_gpu));
  RolloutContext context;
  context.open_store = process->open_store();
  engine.time_scale = flags.time_scale;
  context.make_engine = ChooseEngine(engine, std::move(make_native), *std::move(transfer), clock);
  context.weights = &weights;
  context.calls = &calls;
  context.port = port->get();
  context.open_environments =
      [&](const job::v1::JobSpec& spec) -> absl::StatusOr<std::unique_ptr<EnvironmentPool>> {
    GrpcEnvironmentClientOptions options;
    options.step_timeout = absl::Milliseconds(spec.environment().step_timeout_ms());
    options.episode_timeout =
        std::max(options.episode_timeout,
                 absl::Milliseconds(spec.environment().max_time_ms()) + 2 * options.step_timeout);
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
  WorkerProcess::Extras extras;
  extras.drain_calls = [&calls](absl::Time deadline) {
    const absl::Time now = absl::Now();
    calls.StartDrain(now + kFinishShare * (deadline - now));
  };
  if (*port != nullptr) {
    extras.ready_fields = [&port] { return StrCat(" openai=", (*port)->address()); };
  }
  return process->Serve(
      /*exclusive=*/true,
      [&](const cluster::v1::Assign& assign, const std::string& worker,
          runtime::ControllerCalls& controller,
          std::stop_token) { return RolloutWork::Create(assign, worker, controller, context); },
      {&service, &calls},
      [&] {
        shown.Show(stats_by_job.Take());
        gpus.Refresh();
        if (*port != nullptr) endpoint_metrics.Show((*port)->counts(), (*port)->stats());
      },
      extras);
}

}  // namespace freshet
