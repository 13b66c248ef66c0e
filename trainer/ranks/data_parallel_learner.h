#ifndef FRESHET_TRAINER_RANKS_DATA_PARALLEL_LEARNER_H_
#define FRESHET_TRAINER_RANKS_DATA_PARALLEL_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "trainer/learner/step_plan.h"
#include "trainer/ranks/rank_group.h"

namespace freshet {

// With how many ranks a minibatch is trained. Pure.
struct RankAttempt {
  int ranks = 1;
  const char* reason = "";
};
// `lost`: how often the step has lost ranks.
RankAttempt DecideRanks(int ranks, int64_t lost);

// Data-parallel training: every rank computes the gradients of its part of each minibatch, and
// applies the sum of all ranks' (arXiv:2006.15704). Rank 0, which is `learner`, leads: it divides
// the minibatches, and the others get their state from it.
//
// A rank that dies or hangs is replaced, with the state of rank 0, and the minibatch is repeated;
// rank 0 has not applied it before all ranks have taken part in the sum. If no replacement
// joins, the others go on; a rank that joins later takes part from the next step. If ranks are lost
// twice in one step, rank 0 computes the rest of that step alone; the next step starts with all
// ranks again.
//
// With sharding (PolicyLearnerOptions) the ranks divide the state, and a part is lost with its
// rank: see Learner::StateLost. Rank 0 then never trains alone: without any other rank, TrainStep
// returns UNAVAILABLE. Thread safety: as Learner.
class DataParallelLearner final : public Learner {
 public:
  // ranks >= 2. `shards`: each rank keeps its shard of the last weights, for Shards().
  DataParallelLearner(std::shared_ptr<PolicyLearner> learner, std::unique_ptr<RankStarter> starter,
                      int ranks, bool shards = false);
  ~DataParallelLearner() override;

  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override;
  absl::StatusOr<std::string_view> Arena() const override;
  std::shared_ptr<WeightShards> Shards() const override { return shards_; }
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override;
  bool StateLost() const override;
  std::vector<std::string> LostRanks() const override { return lost_; }
  std::vector<RankState> Ranks() const override;
  std::string WaitsFor() const override;
  void Stop() override;

 private:
  using Shares = std::vector<RankShare>;  // by rank

  absl::Status WithRanks(int64_t step, absl::FunctionRef<absl::Status(size_t ranks)> work);
  // Forms a group of up to `ranks`, or keeps the one there is.
  absl::Status Form(int ranks);
  // The group that the next minibatch should have.
  int WantedRanks() const;
  void Disband();
  void SetPhase(RankPhase phase);
  absl::Status Send(trainer::v1::RankWork::Kind kind, int64_t step,
                    const std::shared_ptr<const Shares>& shares, int64_t largest_share);
  absl::Status SendAll(trainer::v1::RankWork::Kind kind) const;
  absl::StatusOr<std::string_view> WholeArena() const;
  // Lets every rank keep its shard of the weights. Null: not all can.
  std::shared_ptr<WeightShards> StageShards() const;
  absl::Status LossError() const;
  // Makes a divided state whole, before other ranks join.
  absl::Status GatherState();
  absl::Status ComputeProximal(int64_t step, Minibatch& minibatch, size_t ranks);
  absl::StatusOr<StepSums> Update(int64_t step, const Minibatch& minibatch, size_t ranks);

  const std::shared_ptr<PolicyLearner> learner_;
  const std::unique_ptr<RankStarter> starter_;
  const int ranks_;
  const bool keeps_shards_;
  mutable std::shared_ptr<WeightShards> shards_;  // of the last Arena
  mutable int64_t shard_number_ = 0;
  std::vector<std::string> lost_;  // during the step; see LostRanks
  bool tried_ = false;             // to form a group
  std::string loss_;               // why a group ended while the state was divided

  mutable Mutex mu_;  // held to replace group_, and to read it on other threads
  // Null: none is formed. Only the thread of TrainStep writes it, and reads it without mu_.
  std::unique_ptr<RankGroup> group_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  RankPhase phase_ ABSL_GUARDED_BY(mu_) = RankPhase::kIdle;
  std::string last_collective_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_DATA_PARALLEL_LEARNER_H_
