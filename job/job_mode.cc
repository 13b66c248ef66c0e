#include "job/job_mode.h"

#include <string>

#include "base/str_cat.h"

namespace freshet {

std::vector<ConfigError> CheckMode(const JobSpec& spec, const KeyPlaces& places, JobMode mode) {
  std::vector<ConfigError> errors;
  const std::string& transport = spec.weight_sync().transport();
  if (mode == JobMode::kLocal && !transport.empty() && transport != "auto" &&
      transport != "inprocess") {
    errors.push_back(
        places.At("weight_sync.transport",
                  StrCat(transport,
                         " joins processes, but freshet local is one process; use auto or "
                         "inprocess, or submit the job to a cluster")));
  }
  if (mode == JobMode::kCluster && transport == "inprocess") {
    errors.push_back(places.At("weight_sync.transport",
                               "inprocess works within one process only; use auto, shm, "
                               "grpc_relay or nccl, or freshet local"));
  }
  const std::string& engine = spec.rollout().engine();
  if (mode == JobMode::kLocal && !engine.empty() && engine != "native") {
    errors.push_back(places.At("rollout.engine",
                               StrCat(engine,
                                      " needs a server of its own next to a rollout; submit the "
                                      "job to a cluster, or use native")));
  }
  return errors;
}

}  // namespace freshet
