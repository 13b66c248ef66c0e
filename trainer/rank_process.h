#ifndef FRESHET_TRAINER_RANK_PROCESS_H_
#define FRESHET_TRAINER_RANK_PROCESS_H_

#include <memory>

#include "freshet/job/v1/job_spec.pb.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// The argument with which the programs of trainers work as one of the further ranks of another
// process of theirs.
constexpr const char* kRankCommand = "trainer-rank";

// `learner`, with the job's further ranks if it has more than one: child processes of this one,
// which run this program with kRankCommand.
std::shared_ptr<Learner> WithRanks(const job::v1::JobSpec& spec,
                                   std::shared_ptr<PolicyLearner> learner);

// Such a process; returns its exit code. Its standard input is the socket to rank 0.
int RunRankProcess();

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANK_PROCESS_H_
