#include "datastore/redis/redis_batches.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Maximum claims per call of Next; each claim with corrupt bytes ends at least one group.
constexpr int kMaxClaims = 256;
// Tries of a commit whose digest was computed from outdated state.
constexpr int kMaxCommits = 3;
constexpr size_t kGroupFields = 5;  // of next_batch.lua

absl::StatusOr<std::vector<int64_t>> ParseNumbers(std::string_view text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    FRESHET_ASSIGN_OR_RETURN(numbers.emplace_back(), TakeNumber(text, ','));
  }
  return numbers;
}

// `attempts` as in commit_step.lua, separated by commas.
absl::StatusOr<std::vector<std::string>> Uids(const StoreOptions& options,
                                              const std::vector<int64_t>& ordinals,
                                              std::string_view attempts) {
  std::vector<std::string> uids;
  for (size_t i = 0; i < ordinals.size() && !attempts.empty(); ++i) {
    std::string_view part = TakePart(attempts, ',');
    SampleKey key{ordinals[i], 0, 0};
    FRESHET_RETURN_IF_ERROR(TakeNumbers(part, ':', key.attempt));
    int32_t replayed = -1;
    int32_t size = options.group_size;
    if (!part.empty()) FRESHET_RETURN_IF_ERROR(TakeNumbers(part, ':', replayed));
    if (!part.empty()) FRESHET_RETURN_IF_ERROR(TakeNumbers(part, ':', size));
    for (int32_t index = 0; index < size; ++index) {
      key.index = replayed == options.group_size + index ? replayed : index;
      uids.push_back(SampleUid(options.job, key));
    }
  }
  return uids;
}

// The group's entry in the attempts of commit_step.lua.
std::string AttemptOf(const StoreOptions& options, const TrainGroup& group) {
  const bool smaller = std::ssize(group.samples) < options.group_size;
  int32_t replayed = smaller ? 2 * options.group_size : -1;
  for (const TrainSample& sample : group.samples) {
    if (!sample.sample.replay_of.empty()) replayed = sample.sample.key.index;
  }
  std::string text = StrCat(group.samples.front().sample.key.attempt);
  if (replayed >= 0) text += StrCat(":", replayed);
  if (smaller) text += StrCat(":", group.samples.size());
  return text;
}

// Parses the groups of next_batch.lua. The samples' bytes are not fetched yet.
absl::StatusOr<std::vector<TrainGroup>> ParseGroups(const std::vector<RedisReply>& fields,
                                                    FetchPlan& plan) {
  std::vector<TrainGroup> groups;
  for (size_t i = 0; i + kGroupFields <= fields.size(); i += kGroupFields) {
    TrainGroup& group = groups.emplace_back();
    SampleKey key;
    FRESHET_ASSIGN_OR_RETURN(key.ordinal, ParseNumber(fields[i].text));
    std::string_view attempt = fields[i + 1].text;
    FRESHET_RETURN_IF_ERROR(TakeNumbers(attempt, ' ', key.attempt));
    std::string_view rows = fields[i + 3].text;
    std::string_view scores = fields[i + 4].text;
    group.ordinal = key.ordinal;
    while (!rows.empty()) {
      std::string_view line = TakePart(rows, '\n');
      FRESHET_RETURN_IF_ERROR(TakeNumbers(line, ' ', key.index));
      FRESHET_ASSIGN_OR_RETURN(const std::string score, TakeSized(scores));
      FRESHET_ASSIGN_OR_RETURN(group.samples.emplace_back().sample,
                               plan.AddSample(key, score, fields[i + 2].text, line));
    }
    if (group.samples.empty()) return Internal("redis script: a claimed group without samples");
  }
  return groups;
}

absl::Status NoSuchSample(std::string_view ordinal) {
  return StatusOf(absl::StatusCode::kNotFound, "group ", ordinal,
                  ": no such sample is claimed or trained");
}

absl::Status FillLossWindow(const StoreOptions& options, int64_t step, TrainSample& sample) {
  const StalenessOptions staleness = options.BoundOf(!sample.sample.replay_of.empty());
  LossWindow window = ComputeLossWindow(staleness, step - 1, *sample.sample.response);
  if (step - 1 - window.min_version > staleness.max) {
    return Internal("sample ", sample.sample.uid, " of version ", window.min_version,
                    " is beyond the staleness bound ", staleness.max, " at step ", step);
  }
  sample.loss_mask = std::move(window.loss_mask);
  sample.min_version = window.min_version;
  sample.max_version = window.max_version;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenEpochReply> RedisBatches::OpenEpoch(const EpochRequest& request) {
  if (request.trainer.empty()) return InvalidArgument("trainer: empty: an epoch needs a holder");
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kOpenEpoch,
                  {StrCat(request.loaded.lineage), StrCat(request.loaded.version), request.digest,
                   request.id, StrCat(kMaxEpochRequests)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(4));
  OpenEpochReply reply;
  reply.epoch = answer.values[0].integer;
  reply.digest = answer.values[1].text;
  reply.lineage = answer.values[2].integer;
  const std::vector<RedisReply>& redo = answer.values[3].items;
  for (size_t i = 0; i + 3 < redo.size(); i += 4) {
    JournalEntry& entry = reply.redo.emplace_back();
    entry.step = redo[i].integer;
    entry.content_hash = redo[i + 1].text;
    FRESHET_ASSIGN_OR_RETURN(const auto ordinals, ParseNumbers(redo[i + 2].text));
    FRESHET_ASSIGN_OR_RETURN(entry.uids, Uids(config_.options, ordinals, redo[i + 3].text));
  }
  return reply;
}

absl::StatusOr<NextBatchReply> RedisBatches::Next(int64_t epoch, int64_t step) {
  for (int i = 0; i < kMaxClaims; ++i) {
    FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer, runner_.Run(trajectory_scripts::kNextBatch,
                                                                    {StrCat(epoch), StrCat(step)}));
    if (answer.values.size() < 2) return Internal("redis script: a batch without values");
    NextBatchReply reply;
    reply.store_full = answer.values[0].integer == 1 || memory_.PressedPercent() > 0;
    if (answer.code == "PAUSED") {
      reply.paused = true;
      reply.reason = PausedText(answer.values[1].integer);
      return reply;
    }
    if (answer.code == "WAIT") {
      FRESHET_ASSIGN_OR_RETURN(const Explanation edge, EdgeText(answer.values[1], config_));
      reply.reason = edge.text;
      return reply;
    }
    FRESHET_RETURN_IF_ERROR(answer.Expect(4));
    FetchPlan plan(config_.options.job);
    FRESHET_ASSIGN_OR_RETURN(reply.groups, ParseGroups(answer.values[3].items, plan));
    FRESHET_ASSIGN_OR_RETURN(const std::set<int64_t> ended, reader_.Fetch(plan));
    if (!ended.empty()) continue;
    Claim claim{epoch, step, answer.values[2].text, {}, {}};
    for (TrainGroup& group : reply.groups) {
      claim.ordinals.push_back(group.ordinal);
      claim.attempts +=
          StrCat(claim.attempts.empty() ? "" : ",", AttemptOf(config_.options, group));
      for (TrainSample& sample : group.samples) {
        FRESHET_RETURN_IF_ERROR(FillLossWindow(config_.options, step, sample));
      }
    }
    {
      MutexLock lock(mu_);
      claim_ = std::move(claim);
    }
    reply.ready = true;
    reply.reason = answer.values[1].integer == 1
                       ? StrCat("step ", step, " is committed: its batch again")
                       : StrCat("step ", step, " has its ", reply.groups.size(), " groups");
    return reply;
  }
  return StatusOf(absl::StatusCode::kUnavailable, "step ", step, ": ", kMaxClaims,
                  " consecutive claims had unreadable bytes");
}

absl::StatusOr<std::vector<SampleView>> RedisBatches::Read(const std::vector<SampleKey>& keys) {
  std::map<std::pair<int64_t, int32_t>, size_t> places;  // of each ordinal and attempt in the reply
  std::vector<std::string> args;
  for (const SampleKey& key : keys) {
    if (!places.try_emplace({key.ordinal, key.attempt}, places.size()).second) continue;
    args.insert(args.end(), {StrCat(key.ordinal), StrCat(key.attempt)});
  }
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kReadSamples, std::move(args)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  if (answer.code == "MISSING") return NoSuchSample(answer.values[0].text);
  const std::vector<RedisReply>& fields = answer.values[0].items;
  if (fields.size() != 2 * places.size()) return Internal("redis script: groups are missing");
  FetchPlan plan(config_.options.job);
  std::vector<SampleView> samples;
  samples.reserve(keys.size());
  for (const SampleKey& key : keys) {
    const size_t place = places.at({key.ordinal, key.attempt});
    std::string_view rows = fields[2 * place + 1].text;
    bool found = false;
    while (!rows.empty() && !found) {
      std::string_view line = TakePart(rows, '\n');
      int32_t index = 0;
      FRESHET_RETURN_IF_ERROR(TakeNumbers(line, ' ', index));
      if (index != key.index) continue;
      found = true;
      FRESHET_ASSIGN_OR_RETURN(samples.emplace_back(),
                               plan.AddSample(key, /*score=*/"", fields[2 * place].text, line));
    }
    if (!found) return NoSuchSample(StrCat(key.ordinal));
  }
  FRESHET_RETURN_IF_ERROR(reader_.Read(plan));
  return samples;
}

absl::StatusOr<CommitReceipt> RedisBatches::Commit(int64_t epoch, int64_t step,
                                                   const std::vector<int64_t>& ordinals,
                                                   const std::string& content_hash) {
  std::vector<int64_t> sorted = ordinals;
  std::sort(sorted.begin(), sorted.end());
  Claim claim;
  {
    MutexLock lock(mu_);
    if (claim_.epoch == epoch && claim_.step == step && claim_.ordinals == sorted) claim = claim_;
  }
  for (int i = 0; i < kMaxCommits; ++i) {
    // Scripts cannot compute SHA-256: the digest is computed here from state that the script
    // verifies.
    std::string digest = claim.digest;
    FRESHET_ASSIGN_OR_RETURN(const auto uids, Uids(config_.options, sorted, claim.attempts));
    for (const std::string& uid : uids) digest = ExtendDigest(digest, uid);
    FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                             runner_.Run(trajectory_scripts::kCommitStep,
                                         {StrCat(epoch), StrCat(step), absl::StrJoin(sorted, ","),
                                          content_hash, claim.digest, claim.attempts, digest}));
    if (answer.code == "DIGEST") {
      FRESHET_RETURN_IF_ERROR(answer.Expect(2));
      claim.digest = answer.values[0].text;
      claim.attempts = answer.values[1].text;
      continue;
    }
    FRESHET_RETURN_IF_ERROR(answer.Expect(3));
    const std::vector<RedisReply>& values = answer.values;
    return CommitReceipt{{values[2].integer, step}, epoch, step, values[0].text, values[1].text};
  }
  return StatusOf(absl::StatusCode::kUnavailable, "step ", step, ": its batch changed ",
                  kMaxCommits, " times during the commit");
}

}  // namespace freshet
