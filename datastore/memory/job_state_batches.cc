#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/memory/job_state.h"

namespace freshet {
JobState::JobState(StoreOptions options, StoreOrigin origin)
    : options_(std::move(options)),
      origin_(std::move(origin)),
      lineages_(origin_.policy.lineage),
      groups_(options_.group_size),
      ledger_(origin_.ledger_seq),
      steps_(origin_.policy.version, origin_.digest.empty() ? InitialDigest() : origin_.digest),
      origin_above_(origin_.cursor.above),
      last_token_(origin_.TokenBase()),
      high_water_(origin_.cursor.low_water - 1),
      epoch_(origin_.epoch),
      redo_next_(origin_.policy.version + 1) {
  std::sort(origin_above_.begin(), origin_above_.end());
  if (origin_.resumed) return;
  LedgerRow row;
  row.event = LedgerEvent::kOpen;
  row.job = options_.job;
  row.bound = options_.staleness.max;
  row.disposition = freshet::Name(options_.staleness.disposition);
  row.groups_per_step = options_.staleness.groups_per_step;
  row.group_size = options_.group_size;
  if (options_.replay.has_value()) row.replay_max_age = options_.replay->max_age;
  if (options_.adaptive.has_value()) row.min_group_size = options_.adaptive->min_group_size;
  ledger_.Append(std::move(row));
}

absl::Status JobState::RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                    int64_t fork_version, const std::string& checkpoint_sha256) {
  if (!origin_.resumed) return FailedPrecondition("a fresh store has nothing to resume");
  if (resume_recorded_) return FailedPrecondition("the resumed row is written already");
  if (ledger_.last_seq() != origin_.ledger_seq) {
    return FailedPrecondition("the resumed row comes first: ",
                              ledger_.last_seq() - origin_.ledger_seq, " rows are written already");
  }
  resume_recorded_ = true;
  LedgerRow row;
  row.event = LedgerEvent::kResumed;
  row.epoch = epoch_hint;
  row.lineage = lineages_.root();
  row.parent_lineage = parent_lineage;
  row.fork_version = fork_version;
  row.checkpoint_sha256 = checkpoint_sha256;
  row.digest = origin_.digest.empty() ? InitialDigest() : origin_.digest;
  ledger_.Append(std::move(row));
  return absl::OkStatus();
}

absl::Status JobState::CheckLoaded(const PolicyVersion& loaded) const {
  if (loaded.lineage < lineages_.root() || loaded.lineage > lineages_.current()) {
    return FailedPrecondition("loaded lineage ", loaded.lineage, " is not the store's ",
                              lineages_.current(), ": a fork needs a store of its own");
  }
  if (loaded.version > lineages_.Last(loaded.lineage)) {
    return FailedPrecondition("version ", loaded.version, " of lineage ", loaded.lineage,
                              " is not where lineage ", lineages_.current(),
                              " comes from: load its version ", lineages_.Last(loaded.lineage),
                              " or an older one");
  }
  if (loaded.version > steps_.version()) {
    return FailedPrecondition("loaded version ", loaded.version,
                              " is not committed: the store is at ", steps_.version());
  }
  if (loaded.version < steps_.first_version()) {
    return FailedPrecondition("the steps after version ", loaded.version,
                              " are forgotten: load version ", steps_.first_version(),
                              " or a newer one");
  }
  return absl::OkStatus();
}

int64_t JobState::EpochOf(const std::string& id) const {
  const auto it = std::find_if(epoch_requests_.begin(), epoch_requests_.end(),
                               [&](const auto& known) { return known.first == id; });
  return it == epoch_requests_.end() ? 0 : it->second;
}

absl::StatusOr<OpenEpochReply> JobState::OpenEpoch(const EpochRequest& request, absl::Time now) {
  if (request.trainer.empty()) return InvalidArgument("trainer: empty: an epoch needs a holder");
  const PolicyVersion& loaded = request.loaded;
  const int64_t opened = EpochOf(request.id);
  if (opened > 0) {
    const absl::Status fenced = CheckEpoch(opened);
    if (!fenced.ok()) return StatusOf(absl::StatusCode::kAborted, Message(fenced));
  }
  FRESHET_RETURN_IF_ERROR(CheckLoaded(loaded));
  const std::string known = *steps_.Digest(loaded.version);
  if (!request.digest.empty() && request.digest != known) {
    return FailedPrecondition("version ", loaded.version,
                              " was trained on other samples than the store's: digest ",
                              request.digest, ", not ", known);
  }
  OpenEpochReply reply;
  reply.epoch = opened > 0 ? opened : epoch_ + 1;
  reply.lineage = lineages_.current();
  for (int64_t step = loaded.version + 1; step <= steps_.version(); ++step) {
    const CommittedStep* committed = steps_.Find(step);
    FRESHET_CHECK(committed != nullptr);
    reply.redo.push_back({step, committed->uids, committed->content_hash});
  }
  reply.digest = known;
  if (opened > 0) return reply;
  ++epoch_;
  epoch_open_ = true;
  if (!request.id.empty()) epoch_requests_.emplace_back(request.id, epoch_);
  if (std::ssize(epoch_requests_) > kMaxEpochRequests) epoch_requests_.pop_front();
  for (const int64_t ordinal : claimed_) {
    groups_.Move(groups_.Get(ordinal), GroupState::kReady, now);
  }
  claimed_.clear();
  redo_next_ = loaded.version + 1;
  SetDurable(loaded.version, StepJournal::Durability::kLoaded, now);
  Changed(Topic::kBatch);
  return reply;
}

absl::Status JobState::CheckEpoch(int64_t epoch) const {
  if (epoch_open_ && epoch == epoch_) return absl::OkStatus();
  if (!epoch_open_) return FailedPrecondition("epoch ", epoch, ": no trainer epoch is open");
  return FailedPrecondition("trainer epoch ", epoch, " is fenced: the open one is ", epoch_);
}

absl::Status JobState::CheckNextStep(int64_t step) const {
  if (step != steps_.version() + 1) {
    return FailedPrecondition("step ", step, " is not next: ", steps_.version(),
                              " steps are committed");
  }
  if (step > options_.last_step) {
    return FailedPrecondition("step ", step, " is beyond the last step ", options_.last_step);
  }
  if (redo_next_ <= steps_.version()) {
    return FailedPrecondition("step ", step, " comes after the redo: step ", redo_next_,
                              " is not redone yet");
  }
  return absl::OkStatus();
}

std::vector<TrainGroup> JobState::Batch(int64_t step, const std::vector<int64_t>& ordinals) {
  std::vector<TrainGroup> batch;
  batch.reserve(ordinals.size());
  for (const int64_t ordinal : ordinals) {
    const Group& group = groups_.Get(ordinal);
    TrainGroup out;
    out.ordinal = ordinal;
    for (int32_t i = 0; i < group.size(); ++i) {
      TrainSample sample;
      sample.sample = View(group, i);
      const SampleSlot& slot = group.samples[static_cast<size_t>(i)];
      LossWindow window = WindowOf(slot, step - 1);
      FRESHET_CHECK(step - 1 - window.min_version <= options_.BoundOf(!slot.replay_of.empty()).max);
      sample.loss_mask = std::move(window.loss_mask);
      sample.min_version = window.min_version;
      sample.max_version = window.max_version;
      out.samples.push_back(std::move(sample));
    }
    batch.push_back(std::move(out));
  }
  return batch;
}

absl::StatusOr<NextBatchReply> JobState::NextBatch(int64_t epoch, int64_t step, absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckEpoch(epoch));
  ExpireLeases(now);
  NextBatchReply reply;
  reply.store_full = StoreFull();
  if (step <= steps_.version()) {
    const CommittedStep* committed = steps_.Find(step);
    if (committed == nullptr) return FailedPrecondition("step ", step, " is forgotten");
    reply.ready = true;
    reply.groups = Batch(step, committed->ordinals);
    reply.reason = StrCat("step ", step, " is committed: its batch again");
    return reply;
  }
  FRESHET_RETURN_IF_ERROR(CheckNextStep(step));
  if (claimed_.empty() && !paused_.empty()) {
    reply.paused = true;
    reply.reason = StrCat("job paused: ", paused_);
    return reply;
  }
  if (claimed_.empty()) {
    ConsumptionDecision decision =
        DecideConsumption(options_.staleness, steps_.version(), OutstandingAges());
    if (!decision.claim) {
      reply.reason = Blocking(decision, now).text;
      return reply;
    }
    claimed_ = std::move(decision.ordinals);
    for (const int64_t ordinal : claimed_) {
      Group& group = groups_.Get(ordinal);
      group.step = step;
      groups_.Move(group, GroupState::kClaimed, now);
    }
  }
  reply.ready = true;
  reply.groups = Batch(step, claimed_);
  reply.reason = StrCat("step ", step, " has its ", claimed_.size(), " groups");
  return reply;
}

absl::StatusOr<std::vector<SampleView>> JobState::ReadSamples(const std::vector<SampleKey>& keys,
                                                              absl::Time /*now*/) {
  std::vector<SampleView> samples;
  samples.reserve(keys.size());
  for (const SampleKey& key : keys) {
    const Group* group = groups_.Find(key.ordinal);
    const bool trained = group != nullptr && group->attempt == key.attempt &&
                         group->state >= GroupState::kClaimed &&
                         group->state <= GroupState::kDurable;
    const int32_t index = key.index % options_.group_size;
    if (!trained || index < 0 || index >= group->size() || KeyOf(*group, index) != key) {
      return StatusOf(absl::StatusCode::kNotFound, "group ", key.ordinal,
                      ": no such sample is claimed or trained");
    }
    samples.push_back(View(*group, index));
    samples.back().score = nullptr;
  }
  return samples;
}

CommitReceipt JobState::Receipt(const CommittedStep& step) const {
  CommitReceipt receipt;
  receipt.policy = {lineages_.Of(step.step), step.step};
  receipt.epoch = epoch_;
  receipt.step = step.step;
  receipt.content_hash = step.content_hash;
  receipt.digest = step.digest;
  return receipt;
}

absl::StatusOr<CommitReceipt> JobState::CommitStep(int64_t epoch, int64_t step,
                                                   std::vector<int64_t> ordinals,
                                                   const std::string& content_hash,
                                                   absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckEpoch(epoch));
  std::sort(ordinals.begin(), ordinals.end());
  if (step <= steps_.version()) return CommitRedo(step, ordinals, content_hash);
  FRESHET_RETURN_IF_ERROR(CheckNextStep(step));
  if (claimed_.empty()) {
    return FailedPrecondition("step ", step, " has no batch: call NextBatch first");
  }
  if (ordinals != claimed_) {
    return FailedPrecondition("step ", step, ": the ", ordinals.size(),
                              " groups are not those of its batch");
  }
  return CommitClaimed(content_hash, now);
}

absl::StatusOr<CommitReceipt> JobState::CommitRedo(int64_t step,
                                                   const std::vector<int64_t>& ordinals,
                                                   const std::string& content_hash) {
  const CommittedStep* committed = steps_.Find(step);
  if (committed == nullptr) {
    return FailedPrecondition("step ", step, " is committed and forgotten");
  }
  if (ordinals != committed->ordinals) {
    return FailedPrecondition("step ", step, " is committed with other groups");
  }
  if (step > redo_next_) {
    return FailedPrecondition("step ", redo_next_, " is redone before step ", step);
  }
  if (step < redo_next_ && content_hash != committed->content_hash) {
    return FailedPrecondition("step ", step, " is committed with content hash ",
                              committed->content_hash, ", not ", content_hash);
  }
  if (step == redo_next_) {
    if (content_hash != committed->content_hash) ReplaceWeights(step, content_hash);
    WriteTrainedRows(*committed, /*redo=*/true);
    ++redo_next_;
  }
  return Receipt(*committed);
}

void JobState::ReplaceWeights(int64_t step, const std::string& content_hash) {
  steps_.SetContentHash(step, content_hash);
  if (diverged_in_ == epoch_) return;
  diverged_in_ = epoch_;
  lineages_.Diverge(step);
  steps_.ForgetDurable(step);
  Changed(Topic::kAdmission);
}

CommitReceipt JobState::CommitClaimed(const std::string& content_hash, absl::Time now) {
  CommittedStep committed;
  committed.step = steps_.version() + 1;
  committed.ordinals = std::exchange(claimed_, {});
  committed.content_hash = content_hash;
  committed.digest = *steps_.Digest(steps_.version());
  for (const int64_t ordinal : committed.ordinals) {
    Group& group = groups_.Get(ordinal);
    for (int32_t i = 0; i < group.size(); ++i) {
      committed.uids.push_back(SampleUid(options_.job, KeyOf(group, i)));
      committed.digest = ExtendDigest(committed.digest, committed.uids.back());
      ++counters_.trained_samples;
      counters_.trained_tokens +=
          static_cast<int64_t>(group.samples[static_cast<size_t>(i)].response->response_ids.size());
    }
    groups_.Move(group, GroupState::kTrained, now);
  }
  WriteTrainedRows(committed, /*redo=*/false);
  const CommitReceipt receipt = Receipt(committed);
  steps_.Append(std::move(committed));
  redo_next_ = steps_.version() + 1;
  ApplyDisposition(now);
  Changed(Topic::kAdmission);
  Changed(Topic::kBatch);
  return receipt;
}

void JobState::WriteTrainedRows(const CommittedStep& step, bool redo) {
  for (const int64_t ordinal : step.ordinals) {
    const Group& group = groups_.Get(ordinal);
    for (int32_t i = 0; i < group.size(); ++i) {
      const LossWindow window = WindowOf(group.samples[static_cast<size_t>(i)], step.step - 1);
      LedgerRow row = SampleRow(group, i, step.step, window);
      row.event = LedgerEvent::kTrained;
      row.redo = redo;
      if (group.size() < options_.group_size) row.samples = group.size();
      ledger_.Append(std::move(row));
    }
  }
}

absl::Status JobState::MarkDurable(int64_t epoch, int64_t version,
                                   const std::string& checkpoint_sha256, absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckEpoch(epoch));
  if (version < 0 || version > steps_.version()) {
    return FailedPrecondition("version ", version, " is not committed: the store is at ",
                              steps_.version());
  }
  const std::optional<std::string> digest = steps_.Digest(version);
  // A version older than all remembered ones is already durable.
  if (!digest.has_value() || steps_.durability(version) == StepJournal::Durability::kRecorded) {
    return absl::OkStatus();
  }
  LedgerRow row;
  row.event = LedgerEvent::kDurable;
  row.lineage = lineages_.Of(version);
  row.version = version;
  row.checkpoint_sha256 = checkpoint_sha256;
  row.digest = *digest;
  ledger_.Append(std::move(row));
  SetDurable(version, StepJournal::Durability::kRecorded, now);
  return absl::OkStatus();
}

void JobState::SetDurable(int64_t version, StepJournal::Durability durability, absl::Time now) {
  const int64_t before = steps_.newest_durable();
  steps_.SetDurable(version, durability);
  for (int64_t step = before + 1; step <= version; ++step) {
    const CommittedStep* committed = steps_.Find(step);
    FRESHET_CHECK(committed != nullptr);
    for (const int64_t ordinal : committed->ordinals) {
      groups_.Move(groups_.Get(ordinal), GroupState::kDurable, now);
    }
  }
  for (const CommittedStep& step : steps_.Forget()) {
    for (const int64_t ordinal : step.ordinals) {
      ForgetTokens(groups_.Get(ordinal));
      groups_.Erase(ordinal);
    }
  }
  was_full_ = false;
  Changed(Topic::kAdmission);
  Changed(Topic::kSpace);
}

}  // namespace freshet
