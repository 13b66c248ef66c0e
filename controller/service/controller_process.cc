#include "controller/service/controller_process.h"

#include <iostream>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "services/base/str_cat.h"
#include "services/base/version.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/serve.h"
#include "services/runtime/worker_flags.h"
#include "services/worker/worker_begin.h"

namespace freshet {
namespace {

// Watchers block in the datastore, one connection each.
constexpr int kBlockingConnections = 128;
constexpr int kConnections = 16;

}  // namespace

int RunControllerProcess(int argc, char** argv, const ControllerHooks& hooks) {
  runtime::ServeOptions serve;
  serve.role = "controller";
  serve.endpoint.listen = "127.0.0.1:7070";
  serve.endpoint.http_listen = "127.0.0.1:8081";
  serve.registry = std::make_shared<prometheus::Registry>();
  runtime::DatastoreFlags datastore;
  double time_scale = 1.0;
  double keep_hours = 24.0;
  std::string name;
  // Outlives the last line that this process logs.
  static auto* const log = new runtime::LogRing;
  runtime::ShipLog(*log);

  CLI::App app(
      "Directs a Freshet cluster: jobs, workers, prompts, evaluations. Several may run; one "
      "leads, the others stand by.",
      "freshet-controller");
  runtime::AddEndpointFlags(app, serve.endpoint);
  runtime::AddDatastoreFlags(app, datastore);
  app.add_option("--name", name, "name in logs and as leader; default: controller-HOST-PID");
  app.add_option("--keep-hours", keep_hours,
                 "hours that a job's data stays in the datastore after its end")
      ->check(CLI::Range(0.01, 8760.0))
      ->capture_default_str();
  runtime::AddTimeScaleFlag(app, time_scale);
  if (const auto code = runtime::ParseCommandLine(app, argc, argv)) return *code;

  const auto address = runtime::ResolveDatastore(datastore);
  if (!address.ok()) {
    std::cerr << "freshet-controller: " << Message(address.status()) << '\n';
    return 2;
  }
  ControllerRoleOptions options;
  options.redis.host = address->host;
  options.redis.port = address->port;
  options.redis.password = address->password;
  options.redis.max_connections = kConnections;
  options.redis.max_blocking_connections = kBlockingConnections;
  options.redis = Scaled(options.redis, time_scale);
  options.channel = runtime::Scaled(runtime::ChannelOptionsOf(serve.endpoint), time_scale);
  options.timing = ControllerTiming().Scaled(time_scale);
  options.retention.keep = absl::Hours(keep_hours);
  options.name = name;
  options.registry = serve.registry;
  options.log = log;
  options.hooks = hooks;
  auto role = ControllerRole::Create(options);
  if (!role.ok()) {
    std::cerr << "freshet-controller: " << Message(role.status()) << '\n';
    return 2;
  }
  serve.version = Version();
  serve.before_scrape = [&role] { (*role)->RefreshMetrics(); };
  return runtime::Serve(**role, serve);
}

}  // namespace freshet
