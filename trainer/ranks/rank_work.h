#ifndef FRESHET_TRAINER_RANKS_RANK_WORK_H_
#define FRESHET_TRAINER_RANKS_RANK_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "datastore/trajectory_store.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "trainer/learner/step_plan.h"

namespace freshet {

// Without `largest_share`. `by_key`: the rank reads the samples from the job's store.
trainer::v1::RankWork ToProto(trainer::v1::RankWork::Kind kind, int64_t step,
                              const Minibatch& share, bool by_key);
// Reads samples, in the order of `keys`.
using ReadSamples =
    std::function<absl::StatusOr<std::vector<SampleView>>(const std::vector<SampleKey>& keys)>;
// The share of `work`. `read` is called at most once. DATA_LOSS: lengths that contradict each
// other. Errors of `read`.
absl::StatusOr<Minibatch> ShareOf(const trainer::v1::RankWork& work, const ReadSamples& read);

const char* PhaseText(RankPhase phase);
// The collective operation that runs in `phase`; "": none.
const char* CollectiveText(RankPhase phase);

RankState ToRankState(const trainer::v1::RankReport& report);

// Which of `others` a rank in phase `own` of step `step` waits for, and what they
// do; "": for none. Pure.
std::string LateRanks(RankPhase own, int64_t step,
                      const std::vector<trainer::v1::RankReport>& others);

// Suffix tokens of a share: its number of proximal log-probs.
int64_t SuffixTokens(const Minibatch& share);

// Computes the proximal log-probs of `share`, which it fills, and gathers those of all ranks.
// Returns `largest_share` values for each rank, the last ones of which are unused. DATA_LOSS:
// `share` is larger. After any other error the communicator is aborted.
absl::StatusOr<std::vector<float>> GatherProximal(const PolicyLearner& learner,
                                                  Communicator& communicator, Minibatch& share,
                                                  int64_t largest_share);

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RANK_WORK_H_
