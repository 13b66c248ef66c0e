#ifndef FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_
#define FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/reward/worker/reward_worker.h"

namespace freshet {

// The scorers of a resolved job; `remote` makes those of type grpc. INVALID_ARGUMENT
// "reward.components.NAME.OPTION ..." for the first option that a scorer refuses.
absl::StatusOr<std::unique_ptr<CompositeScorer>> MakeJobScorer(const job::v1::JobSpec& spec,
                                                               const RemoteScorerFactory& remote);

// For checks of a job where nothing is scored: the scorers that it makes answer UNAVAILABLE.
RemoteScorerFactory UnconnectedScorers();

// Samples of a job that are scored at the same time: reward.parallel where a service of the user's
// own is asked, which leaves this machine free meanwhile; else at most one per processor.
int64_t RewardParallel(const job::v1::JobSpec& spec,
                       int64_t processors = std::thread::hardware_concurrency());

// The part of a worker's options that a job decides.
RewardWorkerOptions MakeRewardOptions(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_
