#include "services/worker/worker_begin.h"

#include <utility>

#include "services/base/status_macros.h"
#include "services/base/version.h"

namespace freshet {

RedisOptions Scaled(RedisOptions options, double time_scale) {
  for (absl::Duration* time : {&options.connect_timeout, &options.command_timeout,
                               &options.reconnect_backoff_min, &options.reconnect_backoff_max}) {
    *time *= time_scale;
  }
  return options;
}

absl::StatusOr<WorkerBegin> BeginWorker(const runtime::WorkerFlags& flags, cluster::v1::Role role) {
  WorkerBegin begin;
  FRESHET_ASSIGN_OR_RETURN(begin.agent, runtime::MakeAgentOptions(flags, role, Version()));
  FRESHET_ASSIGN_OR_RETURN(const runtime::DatastoreAddress address,
                           runtime::ResolveDatastore(flags.datastore));
  RedisOptions options;
  options.host = address.host;
  options.port = address.port;
  options.password = address.password;
  FRESHET_ASSIGN_OR_RETURN(begin.datastore,
                           OpenRedisDatastore(Scaled(std::move(options), flags.time_scale)));
  return begin;
}

}  // namespace freshet
