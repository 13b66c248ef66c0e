// The trainer's operations.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Maximum claims per NextBatch call; each claim with corrupt bytes ends at least one group.
constexpr int kMaxClaims = 256;
// Tries of a commit whose digest was computed from outdated state.
constexpr int kMaxCommits = 3;
constexpr size_t kGroupFields = 5;  // of next_batch.lua

}  // namespace

absl::StatusOr<OpenEpochReply> RedisTrajectoryStore::OpenEpochFor(const EpochRequest& request) {
  if (request.trainer.empty()) return InvalidArgument("trainer: empty: an epoch needs a holder");
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kOpenEpoch,
                               {StrCat(request.loaded.lineage), StrCat(request.loaded.version),
                                request.digest, request.id, StrCat(kMaxEpochRequests)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(4));
  OpenEpochReply reply;
  reply.epoch = answer.values[0].integer;
  reply.digest = answer.values[1].text;
  reply.lineage = answer.values[2].integer;
  const std::vector<RedisReply>& redo = answer.values[3].items;
  for (size_t i = 0; i + 3 < redo.size(); i += 4) {
    JournalEntry entry;
    entry.step = redo[i].integer;
    entry.content_hash = redo[i + 1].text;
    FRESHET_ASSIGN_OR_RETURN(const auto ordinals, ParseNumbers(redo[i + 2].text));
    FRESHET_ASSIGN_OR_RETURN(const auto attempts, ParseNumbers(redo[i + 3].text));
    entry.uids = Uids(ordinals, attempts);
    reply.redo.push_back(std::move(entry));
  }
  return reply;
}

std::vector<std::string> RedisTrajectoryStore::Uids(const std::vector<int64_t>& ordinals,
                                                    const std::vector<int64_t>& attempts) const {
  std::vector<std::string> uids;
  for (size_t i = 0; i < ordinals.size() && i < attempts.size(); ++i) {
    for (int32_t index = 0; index < config_.options.group_size; ++index) {
      uids.push_back(
          SampleUid(config_.options.job, {ordinals[i], static_cast<int32_t>(attempts[i]), index}));
    }
  }
  return uids;
}

std::string RedisTrajectoryStore::ExtendedDigest(std::string digest,
                                                 const std::vector<int64_t>& ordinals,
                                                 const std::vector<int64_t>& attempts) const {
  for (const std::string& uid : Uids(ordinals, attempts)) digest = ExtendDigest(digest, uid);
  return digest;
}

absl::StatusOr<std::vector<RedisTrajectoryStore::SampleTicket>> RedisTrajectoryStore::GroupTickets(
    const RedisReply* fields, FetchPlan& plan) const {
  std::string_view ordinal_text = fields[0].text;
  std::string_view attempt_text = fields[1].text;
  FRESHET_ASSIGN_OR_RETURN(const int64_t ordinal, TakeNumber(ordinal_text, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(attempt_text, ' '));
  std::string_view rows = fields[3].text;
  std::string_view scores = fields[4].text;
  std::vector<SampleTicket> tickets;
  while (!rows.empty()) {
    std::string_view line = TakePart(rows, '\n');
    FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(line, ' '));
    SampleTicket ticket;
    ticket.key = {ordinal, static_cast<int32_t>(attempt), static_cast<int32_t>(index)};
    FRESHET_ASSIGN_OR_RETURN(ticket.score, TakeSized(scores));
    FRESHET_ASSIGN_OR_RETURN(const std::string ref, TakeSized(scores));
    FRESHET_RETURN_IF_ERROR(AddPlaces(line, ref, fields[2].text, plan, ticket));
    tickets.push_back(std::move(ticket));
  }
  return tickets;
}

absl::StatusOr<TrainGroup> RedisTrajectoryStore::ReadyGroup(
    const std::vector<SampleTicket>& tickets, int64_t step, const Bytes& bytes) const {
  const StalenessOptions& staleness = config_.options.staleness;
  TrainGroup group;
  for (const SampleTicket& ticket : tickets) {
    group.ordinal = ticket.key.ordinal;
    TrainSample sample;
    FRESHET_ASSIGN_OR_RETURN(sample.sample, View(ticket, bytes));
    LossWindow window = ComputeLossWindow(staleness, step - 1, *sample.sample.response);
    if (step - 1 - window.min_version > staleness.max) {
      return Internal("sample ", sample.sample.uid, " of version ", window.min_version,
                      " is beyond the staleness bound ", staleness.max, " at step ", step);
    }
    sample.loss_mask = std::move(window.loss_mask);
    sample.min_version = window.min_version;
    sample.max_version = window.max_version;
    group.samples.push_back(std::move(sample));
  }
  return group;
}

// Returns false if some groups were unreadable and have ended: claim again.
absl::StatusOr<bool> RedisTrajectoryStore::FillBatch(const Answer& answer, int64_t epoch,
                                                     int64_t step, NextBatchReply& reply) {
  FRESHET_RETURN_IF_ERROR(answer.Expect(4));
  const std::vector<RedisReply>& fields = answer.values[3].items;
  std::vector<std::vector<SampleTicket>> groups;
  FetchPlan plan;
  Claim claim{epoch, step, answer.values[2].text, "", {}};
  std::vector<int64_t> ordinals;
  for (size_t i = 0; i + kGroupFields <= fields.size(); i += kGroupFields) {
    FRESHET_ASSIGN_OR_RETURN(groups.emplace_back(), GroupTickets(&fields[i], plan));
    if (groups.back().empty()) return Internal("redis script: a claimed group without samples");
    ordinals.push_back(groups.back().front().key.ordinal);
    claim.attempts.push_back(groups.back().front().key.attempt);
  }
  FRESHET_ASSIGN_OR_RETURN(const Bytes bytes, Fetch(plan));
  if (!bytes.corrupt.empty()) {
    FRESHET_RETURN_IF_ERROR(DropCorrupt(bytes.corrupt));
    return false;
  }
  for (const std::vector<SampleTicket>& tickets : groups) {
    FRESHET_ASSIGN_OR_RETURN(reply.groups.emplace_back(), ReadyGroup(tickets, step, bytes));
  }
  claim.ordinals = JoinNumbers(ordinals);
  MutexLock lock(mu_);
  claim_ = std::move(claim);
  return true;
}

absl::StatusOr<NextBatchReply> RedisTrajectoryStore::NextBatch(int64_t epoch, int64_t step) {
  for (int i = 0; i < kMaxClaims; ++i) {
    FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                             Run(trajectory_scripts::kNextBatch, {StrCat(epoch), StrCat(step)}));
    if (answer.values.size() < 2) return Internal("redis script: a batch without values");
    NextBatchReply reply;
    reply.store_full = answer.values[0].integer == 1 || PressedPercent() > 0;
    if (answer.code == Code::kPaused) {
      reply.paused = true;
      reply.reason = StrCat("job paused: the last ", answer.values[1].integer,
                            " groups were filtered: all rewards of a group are equal");
      return reply;
    }
    if (answer.code == Code::kWait) {
      FRESHET_ASSIGN_OR_RETURN(const Explanation edge, EdgeText(answer.values[1], config_));
      reply.reason = edge.text;
      return reply;
    }
    FRESHET_ASSIGN_OR_RETURN(reply.ready, FillBatch(answer, epoch, step, reply));
    if (!reply.ready) continue;
    reply.reason = answer.values[1].integer == 1
                       ? StrCat("step ", step, " is committed: its batch again")
                       : StrCat("step ", step, " has its ", reply.groups.size(), " groups");
    return reply;
  }
  return StatusOf(absl::StatusCode::kUnavailable, "step ", step, ": ", kMaxClaims,
                  " consecutive claims had unreadable bytes");
}

absl::StatusOr<CommitReceipt> RedisTrajectoryStore::CommitStep(int64_t epoch, int64_t step,
                                                               const std::vector<int64_t>& ordinals,
                                                               const std::string& content_hash) {
  std::vector<int64_t> sorted = ordinals;
  std::sort(sorted.begin(), sorted.end());
  const std::string list = JoinNumbers(sorted);
  Claim claim;
  {
    MutexLock lock(mu_);
    if (claim_.epoch == epoch && claim_.step == step && claim_.ordinals == list) claim = claim_;
  }
  for (int i = 0; i < kMaxCommits; ++i) {
    // Scripts cannot compute SHA-256: the digest is computed here from state that the script
    // verifies.
    FRESHET_ASSIGN_OR_RETURN(
        const Answer answer,
        Run(trajectory_scripts::kCommitStep,
            {StrCat(epoch), StrCat(step), list, content_hash, claim.digest,
             JoinNumbers(claim.attempts), ExtendedDigest(claim.digest, sorted, claim.attempts)}));
    if (answer.code == Code::kDigest) {
      FRESHET_RETURN_IF_ERROR(answer.Expect(2));
      claim.digest = answer.values[0].text;
      FRESHET_ASSIGN_OR_RETURN(claim.attempts, ParseNumbers(answer.values[1].text));
      continue;
    }
    FRESHET_RETURN_IF_ERROR(answer.Expect(3));
    CommitReceipt receipt;
    receipt.policy = {answer.values[2].integer, step};
    receipt.epoch = epoch;
    receipt.step = step;
    receipt.content_hash = answer.values[0].text;
    receipt.digest = answer.values[1].text;
    return receipt;
  }
  return StatusOf(absl::StatusCode::kUnavailable, "step ", step, ": its batch changed ",
                  kMaxCommits, " times during the commit");
}

absl::Status RedisTrajectoryStore::MarkDurable(int64_t epoch, int64_t version,
                                               const std::string& checkpoint_sha256) {
  return Run(trajectory_scripts::kMarkDurable, {StrCat(epoch), StrCat(version), checkpoint_sha256})
      .status();
}

absl::Status RedisTrajectoryStore::RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                                int64_t fork_version,
                                                const std::string& checkpoint_sha256) {
  const std::string digest =
      config_.origin.digest.empty() ? InitialDigest() : config_.origin.digest;
  return Run(trajectory_scripts::kRecordResume, {StrCat(epoch_hint), StrCat(parent_lineage),
                                                 StrCat(fork_version), checkpoint_sha256, digest})
      .status();
}

}  // namespace freshet
