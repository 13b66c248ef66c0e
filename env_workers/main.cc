#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "env_workers/environment.h"
#include "env_workers/service.h"
#include "prometheus/registry.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/queue_metrics.h"
#include "services/worker/worker_flags.h"
#include "services/worker/worker_role.h"

namespace freshet {
namespace {

int Main(int argc, char** argv) {
  CommandLine app("serves environments for multi-turn episodes", "freshet-env");
  runtime::WorkerFlags flags;
  flags.controllers.clear();
  EnvServiceOptions options;
  int64_t idle_timeout_ms = absl::ToInt64Milliseconds(options.idle_timeout);
  runtime::AddEndpointFlags(app, flags.endpoint);
  app.Add("--controller", flags.controllers,
          "HOST:PORT of the controller, or of several separated by commas; default: standalone");
  app.Add("--name", flags.name, "name in the cluster; default: env-HOST-PID");
  app.Add("--max-episodes", options.max_episodes, "maximum number of concurrent episodes")
      .Range(1, 1'000'000)
      .ShowDefault();
  app.Add("--idle-timeout-ms", idle_timeout_ms,
          "end an episode whose client is silent for this long")
      .Range(1, 86'400'000)
      .ShowDefault();
  runtime::AddTimeScaleFlag(app, flags.time_scale);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  options.idle_timeout = absl::Milliseconds(idle_timeout_ms);
  options.max_waiting = options.max_episodes;

  std::optional<runtime::WorkerAgentOptions> agent;
  if (!flags.controllers.empty()) {
    auto made = runtime::MakeAgentOptions(flags, cluster::v1::ROLE_ENV, Version());
    if (!made.ok()) {
      std::fprintf(stderr, "freshet-env: %s\n", Message(made.status()).c_str());
      return 2;
    }
    agent = *std::move(made);
  }
  if (!flags.name.empty()) SetLogWorker(flags.name);
  runtime::LogRing log;
  runtime::ShipLog(log);
  runtime::ServeOptions serve;
  serve.role = "env";
  serve.endpoint = flags.endpoint;
  serve.registry = std::make_shared<prometheus::Registry>();
  EnvMetrics metrics(*serve.registry, BuiltinEnvironments());
  EnvService service(BuiltinEnvironments(), SystemClock::Get(), &metrics, options);
  runtime::WorkerRoleOptions role_options;
  role_options.agent = std::move(agent);
  role_options.fill_load = [&service](cluster::v1::WorkerStatus& status) {
    status.set_open_episodes(service.open_episodes());
  };
  role_options.drain_calls = [&service](absl::Time deadline) {
    service.StopAdmitting();
    if (service.AwaitNoEpisodes(deadline)) return;
    FRESHET_LOG(Warning) << "event=episodes_cut count=" << service.open_episodes();
  };
  runtime::WorkerRole role(std::move(role_options), /*factory=*/nullptr, {&service}, &log);
  metrics::QueueMetrics queues(*serve.registry);
  queues.Watch("episodes", options.max_episodes, [&service] { return service.open_episodes(); });
  queues.Watch("episodes_waiting", options.max_waiting,
               [&service] { return service.waiting_episodes(); });
  serve.version = Version();
  serve.before_scrape = [&queues] { queues.Refresh(); };
  return runtime::Serve(role, serve);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
