#ifndef FRESHET_TRAINER_RANK_PROCESS_H_
#define FRESHET_TRAINER_RANK_PROCESS_H_

#include <memory>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "datastore/trajectory_store.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/ranks/joined_ranks.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// Command-line argument that makes a trainer's program run as a child rank.
constexpr const char* kRankCommand = "trainer-rank";

// `learner`, together with the job's other ranks if it has any: those in `joined`, or if that is
// null, child processes, which run this program with kRankCommand. FAILED_PRECONDITION: the ranks
// compute on GPUs, and NCCL cannot be used.
absl::StatusOr<std::shared_ptr<Learner>> MakeJobLearner(
    const job::v1::JobSpec& spec, std::shared_ptr<PolicyLearner> learner,
    std::shared_ptr<JoinedRanks> joined = nullptr, const RankStore& store = {});

// INVALID_ARGUMENT: this machine has fewer GPUs than `ranks`, each of which needs one.
absl::Status CheckGpuOfEachRank(int64_t ranks);

// Runs a rank of a trainer on another host until `socket` is closed.
absl::Status RunJoinedRank(UniqueFd socket, const StoreOpener& open_store);

// Runs a child rank until rank 0 closes its standard input, a socket. The arguments, from
// kRankCommand on, say where the datastore is. Returns the exit code.
int RunRankProcess(int argc, const char* const* argv);

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANK_PROCESS_H_
