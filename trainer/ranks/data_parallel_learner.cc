#include "trainer/ranks/data_parallel_learner.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/ranks/rank_work.h"

namespace freshet {

using trainer::v1::RankWork;

RankAttempt DecideRanks(int ranks, int attempt) {
  if (attempt == 0) return {ranks, "all ranks"};
  if (attempt == 1) return {ranks, "all ranks, of which the lost one is replaced"};
  return {1, "rank 0 alone, because ranks were lost twice"};
}

DataParallelLearner::DataParallelLearner(std::shared_ptr<PolicyLearner> learner,
                                         std::unique_ptr<RankStarter> starter, int ranks)
    : learner_(std::move(learner)), starter_(std::move(starter)), ranks_(ranks) {
  FRESHET_CHECK(ranks >= 2);
}

DataParallelLearner::~DataParallelLearner() { Disband(); }

void DataParallelLearner::Disband() {
  learner_->SetRanks(nullptr);
  std::unique_ptr<RankGroup> group;
  const MutexLock lock(mu_);
  group_.swap(group);
}

std::string DataParallelLearner::WaitsFor() const {
  const MutexLock lock(mu_);
  return group_ == nullptr ? "" : LateRanks(phase_, step_, group_->Reports());
}

absl::Status DataParallelLearner::Form(int ranks) {
  if (ranks == 1) Disband();
  if (ranks == 1 || group_ != nullptr) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RankGroup> group, starter_->Start(ranks));
  {
    const MutexLock lock(mu_);
    group_ = std::move(group);
  }
  learner_->SetRanks(&group_->communicator(), [this](RankPhase phase) {
    const MutexLock lock(mu_);
    phase_ = phase;
  });
  FRESHET_RETURN_IF_ERROR(learner_->SyncFromRankZero());
  FRESHET_LOG(Info) << "event=ranks_formed ranks=" << ranks;
  return absl::OkStatus();
}

absl::StatusOr<TrainStepResult> DataParallelLearner::TrainStep(
    int64_t step, const std::vector<TrainGroup>& groups) {
  FRESHET_ASSIGN_OR_RETURN(StepPlan plan, PlanStep(learner_->options(), step, groups));
  lost_.clear();
  {
    const MutexLock lock(mu_);
    step_ = step;
  }
  if (plan.proximal) {
    for (Minibatch& minibatch : plan.minibatches) {
      FRESHET_RETURN_IF_ERROR(
          WithRanks(step, [&](size_t ranks) { return ComputeProximal(step, minibatch, ranks); }));
    }
  }
  StepSums sums;
  for (size_t m = 0; m < plan.minibatches.size(); ++m) {
    const absl::Status updated = WithRanks(step, [&](size_t ranks) {
      const absl::StatusOr<StepSums> part = Update(step, plan.minibatches[m], ranks);
      if (part.ok()) sums.Add(*part);
      return part.status();
    });
    if (!updated.ok()) return MinibatchError(plan, m, updated);
  }
  TrainStepResult result = StepResult(std::move(plan), sums, learner_->options().schedule);
  result.lost_ranks = std::move(lost_);
  const MutexLock lock(mu_);
  phase_ = RankPhase::kIdle;
  return result;
}

// `work` changes nothing unless it returns OK.
absl::Status DataParallelLearner::WithRanks(int64_t step,
                                            absl::FunctionRef<absl::Status(size_t ranks)> work) {
  for (int attempt = 0;; ++attempt) {
    const int ranks = DecideRanks(ranks_, attempt).ranks;
    absl::Status status = Form(ranks);
    if (status.ok()) status = work(static_cast<size_t>(ranks));
    if (ranks == 1) return status;
    const absl::Status lost = group_ == nullptr ? status : group_->communicator().error();
    if (lost.ok()) return status;
    Disband();
    lost_.push_back(Message(lost));
    // If it was lost after the work, the next work is that of a new group.
    const char* next = DecideRanks(ranks_, status.ok() ? 0 : attempt + 1).reason;
    FRESHET_LOG(Warning) << "event=rank_lost step=" << step
                         << " reason=" << LogQuoted(Message(lost)) << " next=" << LogQuoted(next);
    if (status.ok()) return status;
  }
}

absl::Status DataParallelLearner::Send(RankWork::Kind kind, int64_t step,
                                       const std::vector<RankShare>& shares,
                                       int64_t largest_share) {
  for (size_t rank = 1; rank < shares.size(); ++rank) {
    RankWork work = ToProto(kind, step, shares[rank].minibatch);
    work.set_largest_share(largest_share);
    const absl::Status sent = group_->Send(static_cast<int>(rank), work);
    if (sent.ok()) continue;
    group_->communicator().Abort(StrCat("rank ", rank, " takes no work: ", Message(sent)));
    return sent;
  }
  return absl::OkStatus();
}

absl::Status DataParallelLearner::ComputeProximal(int64_t step, Minibatch& minibatch,
                                                  size_t ranks) {
  if (ranks == 1) return learner_->ComputeProximal(minibatch);
  std::vector<RankShare> shares = DivideMinibatch(learner_->options().model, minibatch, ranks);
  int64_t largest = 0;
  for (const RankShare& share : shares) {
    largest = std::max(largest, SuffixTokens(share.minibatch));
  }
  FRESHET_RETURN_IF_ERROR(Send(RankWork::KIND_PROXIMAL, step, shares, largest));
  FRESHET_ASSIGN_OR_RETURN(
      const std::vector<float> all,
      GatherProximal(*learner_, group_->communicator(), shares[0].minibatch, largest));
  for (size_t rank = 0; rank < ranks; ++rank) {
    auto next = all.begin() + static_cast<int64_t>(rank) * largest;
    for (const size_t tree : shares[rank].trees) {
      TrainingRows::Columns& columns = minibatch.rows.columns[tree];
      const auto end = next + std::ssize(columns.loss_mask);
      columns.proximal_logprobs.assign(next, end);
      next = end;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepSums> DataParallelLearner::Update(int64_t step, const Minibatch& minibatch,
                                                     size_t ranks) {
  if (ranks == 1) return learner_->Update(step, minibatch);
  const std::vector<RankShare> shares =
      DivideMinibatch(learner_->options().model, minibatch, ranks);
  FRESHET_RETURN_IF_ERROR(Send(RankWork::KIND_UPDATE, step, shares, /*largest_share=*/0));
  return learner_->Update(step, shares[0].minibatch);
}

}  // namespace freshet
