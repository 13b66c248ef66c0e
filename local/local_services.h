#ifndef FRESHET_LOCAL_LOCAL_SERVICES_H_
#define FRESHET_LOCAL_LOCAL_SERVICES_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "rollout/environment/environment_client.h"
#include "services/reward/scorers/scorer_factory.h"

namespace freshet {

// Clients of freshet local for services that a job names by address (type grpc). Connections are
// plaintext and opened on first use.

// `python_rewards`: a loopback address, for types math and python; "": none.
RemoteScorerFactory ConnectedScorers(const std::string& python_rewards);

// A user's own environment; `clock` must outlive it.
std::unique_ptr<EnvironmentClient> ConnectEnvironment(const job::v1::Environment& environment,
                                                      const Clock& clock);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_SERVICES_H_
