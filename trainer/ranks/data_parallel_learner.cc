#include "trainer/ranks/data_parallel_learner.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/ranks/rank_work.h"

namespace freshet {

using trainer::v1::RankWork;

namespace {

// How long the reason of a loss may take to be known, after its effect.
constexpr absl::Duration kReasonPatience = absl::Seconds(1);
// Groups that a step of ranks that divide the state tries to form.
constexpr int64_t kMostTries = 2;

}  // namespace

RankAttempt DecideRanks(int ranks, int64_t lost) {
  if (lost == 0) return {ranks, "all ranks"};
  if (lost == 1) return {ranks, "all ranks, in a new group"};
  return {1, "rank 0 alone for the rest of the step"};
}

DataParallelLearner::DataParallelLearner(std::shared_ptr<PolicyLearner> learner,
                                         std::unique_ptr<RankStarter> starter, int ranks,
                                         bool shards)
    : learner_(std::move(learner)),
      starter_(std::move(starter)),
      ranks_(ranks),
      keeps_shards_(shards) {
  FRESHET_CHECK(ranks >= 2);
}

DataParallelLearner::~DataParallelLearner() { Disband(); }

void DataParallelLearner::Stop() { starter_->Stop(); }

void DataParallelLearner::Disband() {
  learner_->SetRanks({});
  std::unique_ptr<RankGroup> group;
  const MutexLock lock(mu_);
  group_.swap(group);
}

std::vector<RankState> DataParallelLearner::Ranks() const {
  const MutexLock lock(mu_);
  std::vector<RankState> ranks = {{0, PhaseText(phase_), step_, last_collective_}};
  if (group_ != nullptr) {
    for (const trainer::v1::RankReport& report : group_->Reports()) {
      ranks.push_back(ToRankState(report));
    }
  }
  // A job with fewer ranks than the trainer has may use any of them.
  for (int number = 1; std::ssize(ranks) < ranks_ && number < ranks_; ++number) {
    if (std::ranges::find(ranks, number, &RankState::rank) == ranks.end()) {
      ranks.push_back({number, "missing", 0, ""});
    }
  }
  return ranks;
}

std::string DataParallelLearner::WaitsFor() const {
  const MutexLock lock(mu_);
  return group_ == nullptr ? starter_->WaitsFor() : LateRanks(phase_, step_, group_->Reports());
}

void DataParallelLearner::SetPhase(RankPhase phase) {
  const MutexLock lock(mu_);
  phase_ = phase;
  if (const std::string collective = CollectiveText(phase); !collective.empty()) {
    last_collective_ = collective;
  }
}

absl::Status DataParallelLearner::Form(int ranks) {
  if (ranks == 1) Disband();
  if (ranks == 1 || group_ != nullptr) return absl::OkStatus();
  tried_ = true;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RankGroup> group, starter_->Start(ranks));
  {
    const MutexLock lock(mu_);
    group_ = std::move(group);
  }
  learner_->SetRanks({&group_->communicator(), group_->background(),
                      [this](RankPhase phase) { SetPhase(phase); }, /*number=*/0, group_->here()});
  FRESHET_RETURN_IF_ERROR(learner_->SyncFromRankZero());
  FRESHET_LOG(Info) << "event=ranks_formed ranks=" << group_->communicator().size()
                    << " wanted=" << ranks;
  return absl::OkStatus();
}

int DataParallelLearner::WantedRanks() const {
  if (learner_->options().sharding != Sharding::kNone) return ranks_;
  // Only a step that has just lost ranks waits for them.
  if (group_ == nullptr && tried_ && lost_.empty() && starter_->Ready() == 0) return 1;
  return DecideRanks(ranks_, std::ssize(lost_)).ranks;
}

absl::StatusOr<TrainStepResult> DataParallelLearner::TrainStep(
    int64_t step, const std::vector<TrainGroup>& groups) {
  lost_.clear();
  {
    const MutexLock lock(mu_);
    step_ = step;
  }
  if (StateLost()) return LossError();
  // Takes in ranks that have come since.
  if (group_ != nullptr && group_->communicator().size() < ranks_ &&
      starter_->HasOthers(group_->Reports())) {
    if (learner_->divided()) FRESHET_RETURN_IF_ERROR(GatherState());
    Disband();
  }
  absl::StatusOr<TrainStepResult> result = RunStep(
      learner_->options(), step, groups,
      [&](Minibatch& minibatch) {
        return WithRanks(step,
                         [&](size_t ranks) { return ComputeProximal(step, minibatch, ranks); });
      },
      [&](const Minibatch& minibatch) -> absl::StatusOr<StepSums> {
        absl::StatusOr<StepSums> sums;
        FRESHET_RETURN_IF_ERROR(WithRanks(step, [&](size_t ranks) {
          sums = Update(step, minibatch, ranks);
          return sums.status();
        }));
        return sums;
      });
  if (result.ok()) {
    result->lost_ranks = std::move(lost_);
    result->ranks = group_ == nullptr ? 1 : group_->communicator().size();
  }
  SetPhase(RankPhase::kIdle);
  return result;
}

// Unless it returns OK, `work` changes nothing, or a divided state is lost.
absl::Status DataParallelLearner::WithRanks(int64_t step,
                                            absl::FunctionRef<absl::Status(size_t ranks)> work) {
  while (true) {
    const int ranks = WantedRanks();
    absl::Status status = Form(ranks);
    // Ranks lost since the last minibatch: the others should not begin a share for nothing.
    if (status.ok() && group_ != nullptr) status = group_->communicator().error();
    if (status.ok()) {
      status = work(static_cast<size_t>(group_ == nullptr ? 1 : group_->communicator().size()));
    }
    if (ranks == 1) return status;
    if (absl::IsCancelled(status)) return status;
    absl::Status lost = group_ == nullptr ? status : group_->communicator().error();
    // The group has failed, or another rank has.
    if (lost.ok() && absl::IsUnavailable(status)) lost = status;
    if (lost.ok()) {
      // All ranks have agreed on FAILED_PRECONDITION. After other errors they may differ in what
      // comes next.
      if (!status.ok() && !absl::IsFailedPrecondition(status)) {
        loss_ = Message(status);
        Disband();
      }
      return status;
    }
    if (learner_->divided()) {
      loss_ = group_ == nullptr ? "" : group_->LossReason(kReasonPatience);
      if (loss_.empty()) loss_ = Message(lost);
      Disband();
      return LossError();
    }
    std::string reason = group_ == nullptr ? "" : group_->LossReason(kReasonPatience);
    if (reason.empty()) reason = Message(lost);
    const bool formed = group_ != nullptr;
    Disband();
    lost_.push_back(reason);
    // Rank 0 alone may lack the memory.
    const bool ends =
        std::ssize(lost_) == kMostTries && learner_->options().sharding != Sharding::kNone;
    FRESHET_LOG(Warning) << "event=" << (formed ? "rank_lost" : "ranks_not_formed")
                         << " step=" << step << " reason=" << LogQuoted(reason) << " next="
                         << LogQuoted(ends ? "the step fails"
                                           : DecideRanks(ranks_, std::ssize(lost_)).reason);
    if (status.ok()) return status;  // the work is done; the next one forms a new group
    if (ends) return StatusOf(absl::StatusCode::kUnavailable, reason);
  }
}

bool DataParallelLearner::StateLost() const {
  return learner_->divided() && (group_ == nullptr || !group_->communicator().error().ok());
}

absl::Status DataParallelLearner::LossError() const {
  std::string reason = loss_;
  if (group_ != nullptr) {
    reason = group_->LossReason(kReasonPatience);
    if (reason.empty()) reason = Message(group_->communicator().error());
  }
  return StatusOf(absl::StatusCode::kUnavailable, reason, "; a part of the model's state is lost");
}

absl::StatusOr<std::string_view> DataParallelLearner::Arena() const {
  shards_ = nullptr;
  absl::StatusOr<std::string_view> arena = WholeArena();
  if (arena.ok() && keeps_shards_ && group_ != nullptr) shards_ = StageShards();
  return arena;
}

std::shared_ptr<WeightShards> DataParallelLearner::StageShards() const {
  if (!group_->communicator().error().ok()) return nullptr;
  RankWork work;
  work.set_kind(RankWork::KIND_STAGE_SHARD);
  work.set_shard(++shard_number_);
  {
    const MutexLock lock(mu_);
    work.set_step(step_);
  }
  for (int rank = 1; rank < group_->communicator().size(); ++rank) {
    if (!group_->Send(rank, work).ok()) return nullptr;  // the next step notices
  }
  return group_->Shards(shard_number_, learner_->ShardRanges());
}

absl::StatusOr<std::string_view> DataParallelLearner::WholeArena() const {
  if (StateLost()) return LossError();
  if (!learner_->divided()) return learner_->Arena();
  if (learner_->options().sharding == Sharding::kFull) {
    FRESHET_RETURN_IF_ERROR(SendAll(RankWork::KIND_SEND_WEIGHTS));
  }
  absl::StatusOr<std::string_view> arena = learner_->Arena();
  return StateLost() ? LossError() : std::move(arena);
}

absl::StatusOr<std::shared_ptr<const LearnerState>> DataParallelLearner::Snapshot() const {
  if (StateLost()) return LossError();
  if (!learner_->divided()) return learner_->Snapshot();
  FRESHET_RETURN_IF_ERROR(SendAll(RankWork::KIND_SEND_SNAPSHOT));
  absl::StatusOr<std::shared_ptr<const LearnerState>> snapshot = learner_->Snapshot();
  return StateLost() ? LossError() : std::move(snapshot);
}

absl::Status DataParallelLearner::GatherState() {
  absl::Status gathered = SendAll(RankWork::KIND_SEND_STATE);
  if (gathered.ok()) gathered = learner_->HoldWholeState();
  if (gathered.ok()) return gathered;
  loss_ = Message(StateLost() ? LossError() : gathered);
  Disband();
  return LossError();
}

absl::Status DataParallelLearner::SendAll(RankWork::Kind kind) const {
  RankWork work;
  work.set_kind(kind);
  {
    const MutexLock lock(mu_);
    work.set_step(step_);
  }
  for (int rank = 1; rank < group_->communicator().size(); ++rank) {
    const absl::Status sent = group_->Send(rank, work);
    if (sent.ok()) continue;
    group_->communicator().Abort(Message(sent));
    return LossError();
  }
  return absl::OkStatus();
}

absl::Status DataParallelLearner::Send(RankWork::Kind kind, int64_t step,
                                       const std::shared_ptr<const Shares>& shares,
                                       int64_t largest_share) {
  for (size_t rank = 1; rank < shares->size(); ++rank) {
    const auto make = [kind, step, rank, largest_share](const Shares& all, bool by_key) {
      RankWork work = ToProto(kind, step, all[rank].minibatch, by_key);
      work.set_largest_share(largest_share);
      return work;
    };
    RankGroup::MakeWork with_tokens;
    if (group_->reads_samples()) {
      with_tokens = [make, weak = std::weak_ptr(shares)]() -> std::optional<RankWork> {
        const std::shared_ptr<const Shares> all = weak.lock();
        if (all == nullptr) return std::nullopt;
        return make(*all, /*by_key=*/false);
      };
    }
    const absl::Status sent = group_->Send(
        static_cast<int>(rank), make(*shares, group_->reads_samples()), std::move(with_tokens));
    if (sent.ok()) continue;
    group_->communicator().Abort(Message(sent));
    return sent;
  }
  return absl::OkStatus();
}

absl::Status DataParallelLearner::ComputeProximal(int64_t step, Minibatch& minibatch,
                                                  size_t ranks) {
  if (ranks == 1) return learner_->ComputeProximal(minibatch);
  const auto shares =
      std::make_shared<Shares>(DivideMinibatch(learner_->options().model, minibatch, ranks));
  int64_t largest = 0;
  for (const RankShare& share : *shares) {
    largest = std::max(largest, SuffixTokens(share.minibatch));
  }
  FRESHET_RETURN_IF_ERROR(Send(RankWork::KIND_PROXIMAL, step, shares, largest));
  FRESHET_ASSIGN_OR_RETURN(
      const std::vector<float> all,
      GatherProximal(*learner_, group_->communicator(), shares->front().minibatch, largest));
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto of_rank = std::span(all).subspan(rank * static_cast<size_t>(largest));
    AssignProximal((*shares)[rank].trees, of_rank, minibatch.rows);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepSums> DataParallelLearner::Update(int64_t step, const Minibatch& minibatch,
                                                     size_t ranks) {
  if (ranks == 1) return learner_->Update(step, minibatch);
  const auto shares =
      std::make_shared<const Shares>(DivideMinibatch(learner_->options().model, minibatch, ranks));
  FRESHET_RETURN_IF_ERROR(Send(RankWork::KIND_UPDATE, step, shares, /*largest_share=*/0));
  return learner_->Update(step, shares->front().minibatch);
}

}  // namespace freshet
