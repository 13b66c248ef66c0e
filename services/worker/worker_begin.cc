#include "services/worker/worker_begin.h"

#include <utility>

#include "services/base/status_macros.h"
#include "services/base/version.h"

namespace freshet {

absl::StatusOr<WorkerBegin> BeginWorker(const runtime::WorkerFlags& flags, cluster::v1::Role role) {
  WorkerBegin begin;
  FRESHET_ASSIGN_OR_RETURN(begin.agent, runtime::MakeAgentOptions(flags, role, Version()));
  FRESHET_ASSIGN_OR_RETURN(const runtime::DatastoreAddress address,
                           runtime::ResolveDatastore(flags.datastore));
  RedisOptions options;
  options.host = address.host;
  options.port = address.port;
  options.password = address.password;
  FRESHET_ASSIGN_OR_RETURN(begin.datastore, OpenRedisDatastore(std::move(options)));
  return begin;
}

}  // namespace freshet
