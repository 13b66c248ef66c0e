#ifndef FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_
#define FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_

#include <cstdint>
#include <thread>

#include "freshet/job/v1/job_spec.pb.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/reward/worker/reward_worker.h"

namespace freshet {

// For validation only: the scorers that it creates answer UNAVAILABLE.
ServiceScorers UnconnectedScorers();

// Samples of a job scored concurrently: reward.parallel if another process is asked, which a
// scoring thread waits for; otherwise at most one per processor.
int64_t RewardParallel(const job::v1::JobSpec& spec,
                       int64_t processors = std::thread::hardware_concurrency());

// The job-dependent part of a worker's options.
RewardWorkerOptions MakeRewardOptions(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_REWARD_SETUP_H_
