#ifndef FRESHET_LOCAL_LOCAL_SERVICES_H_
#define FRESHET_LOCAL_LOCAL_SERVICES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "rollout/environment/environment_client.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/runtime/reward_flags.h"

namespace freshet {

// Clients of freshet local for services that a job names by address (type grpc). Connections are
// plaintext and opened on first use.

// INVALID_ARGUMENT naming the flag.
absl::StatusOr<ServiceScorers> ConnectedScorers(const runtime::RewardFlags& offered);

// A user's own environment; `clock` must outlive it.
std::unique_ptr<EnvironmentClient> ConnectEnvironment(const job::v1::Environment& environment,
                                                      const Clock& clock);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_SERVICES_H_
