#ifndef FRESHET_TRAINER_RANK_PROCESS_H_
#define FRESHET_TRAINER_RANK_PROCESS_H_

#include <memory>

#include "freshet/job/v1/job_spec.pb.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// Command-line argument that makes a trainer's program run as a child rank.
constexpr const char* kRankCommand = "trainer-rank";

// `learner`, together with the job's other ranks if it has any: child processes, which run this
// program with kRankCommand.
std::shared_ptr<Learner> MakeJobLearner(const job::v1::JobSpec& spec,
                                        std::shared_ptr<PolicyLearner> learner);

// Runs a child rank until rank 0 closes its standard input, a socket. Returns the exit code.
int RunRankProcess();

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANK_PROCESS_H_
