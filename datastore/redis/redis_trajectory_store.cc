#include "datastore/redis/redis_trajectory_store.h"

#include <string_view>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Trash entries per script, and scripts per Sweep. A group of 16 has about 17 keys; a script takes
// under a millisecond.
constexpr int64_t kCollectEntries = 64;
constexpr int kCollectSlices = 100;

std::string FirstDigest(const RedisStoreConfig& config) {
  return config.origin.digest.empty() ? InitialDigest() : config.origin.digest;
}

// Runs create.lua. Returns what it found or wrote: the configuration ("" if there was none) and the
// generation ("" if there is none now).
absl::StatusOr<std::vector<RedisReply>> ReadOrWrite(RedisClient& client, const std::string& prefix,
                                                    const std::vector<std::string>& args) {
  FRESHET_ASSIGN_OR_RETURN(
      RedisReply reply, client.Run(trajectory_scripts::kCreate, {StrCat(prefix, "state")}, args));
  if (reply.items.size() != 2) return Internal("redis script: create gave no pair");
  return std::move(reply.items);
}

}  // namespace

RedisTrajectoryStore::RedisTrajectoryStore(std::shared_ptr<RedisClient> client,
                                           RedisStoreConfig config, std::string generation,
                                           const RedisStoreSettings& settings)
    : config_(std::move(config)),
      feed_(client, config_.Prefix()),
      runner_(std::move(client), feed_, config_, std::move(generation), settings),
      memory_(runner_.client(), settings.memory_period),
      reader_(runner_),
      puts_(runner_),
      leases_(runner_, reader_, memory_),
      batches_(runner_, reader_, memory_),
      ledger_(runner_, settings.ledger_segment_rows),
      evaluations_(runner_, feed_),
      calls_(runner_) {}

absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> RedisTrajectoryStore::Create(
    std::shared_ptr<RedisClient> client, StoreOptions options, StoreOrigin origin,
    RedisStoreSettings settings) {
  RedisStoreConfig config{std::move(options), std::move(origin)};
  FRESHET_RETURN_IF_ERROR(config.Validate());
  std::vector<std::string> args = {config.Prefix(),
                                   RedisStoreConfigToJson(config),
                                   ScriptTime(settings.clock),
                                   FirstDigest(config),
                                   StrCat(config.origin.policy.version),
                                   config.origin.resumed ? "0" : "1",
                                   StrCat(config.origin.cursor.above.size())};
  for (const int64_t ordinal : config.origin.cursor.above) args.push_back(StrCat(ordinal));
  const auto script_options = config.ScriptOptions();
  args.push_back(StrCat(script_options.size()));
  for (const auto& values : {script_options, config.FirstState()}) {
    for (const auto& [name, value] : values) args.insert(args.end(), {name, value});
  }
  FRESHET_ASSIGN_OR_RETURN(const auto known, ReadOrWrite(*client, config.Prefix(), args));
  if (!known[0].text.empty()) {
    FRESHET_ASSIGN_OR_RETURN(const RedisStoreConfig stored, ParseRedisStoreConfig(known[0].text));
    const std::string difference = FirstDifference(stored, config);
    if (!difference.empty()) {
      return FailedPrecondition("job ", config.options.job,
                                " has a store with other values: ", difference);
    }
  }
  if (known[1].text.empty()) {
    return FailedPrecondition("the store of job ", config.options.job,
                              " is partially deleted: delete the job first");
  }
  return std::unique_ptr<RedisTrajectoryStore>(
      new RedisTrajectoryStore(std::move(client), std::move(config), known[1].text, settings));
}

absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> RedisTrajectoryStore::Open(
    std::shared_ptr<RedisClient> client, const std::string& job, RedisStoreSettings settings) {
  FRESHET_RETURN_IF_ERROR(ValidateJobName(job));
  const std::string prefix = StrCat("{", job, "}:");
  FRESHET_ASSIGN_OR_RETURN(const auto known, ReadOrWrite(*client, prefix, {prefix, ""}));
  if (known[0].text.empty() || known[1].text.empty()) return NotFound("job ", job, " has no store");
  FRESHET_ASSIGN_OR_RETURN(RedisStoreConfig config, ParseRedisStoreConfig(known[0].text));
  return std::unique_ptr<RedisTrajectoryStore>(
      new RedisTrajectoryStore(std::move(client), std::move(config), known[1].text, settings));
}

absl::Status RedisTrajectoryStore::MarkDurable(int64_t epoch, int64_t version,
                                               const std::string& checkpoint_sha256) {
  return runner_
      .Run(trajectory_scripts::kMarkDurable, {StrCat(epoch), StrCat(version), checkpoint_sha256})
      .status();
}

absl::Status RedisTrajectoryStore::RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                                int64_t fork_version,
                                                const std::string& checkpoint_sha256) {
  return runner_
      .Run(trajectory_scripts::kRecordResume,
           {StrCat(epoch_hint), StrCat(parent_lineage), StrCat(fork_version), checkpoint_sha256,
            FirstDigest(config_)})
      .status();
}

absl::Status RedisTrajectoryStore::CountGeneration(const GenerationTotals& added) {
  FRESHET_RETURN_IF_ERROR(added.Validate());
  return runner_
      .Run(trajectory_scripts::kCountGeneration,
           {StrCat(added.tokens), StrCat(absl::ToInt64Microseconds(added.idle)),
            StrCat(absl::ToInt64Microseconds(added.swap))})
      .status();
}

absl::StatusOr<int64_t> RedisTrajectoryStore::RevokeWorker(const std::string& worker) {
  if (worker.empty()) return InvalidArgument("worker: empty: no worker to revoke");
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kRevokeWorker, {worker, StrCat(kMaxRevokedWorkers)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return answer.values[0].integer;
}

absl::StatusOr<int64_t> RedisTrajectoryStore::Sweep() {
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer swept, runner_.Run(trajectory_scripts::kSweep, {}));
  FRESHET_RETURN_IF_ERROR(swept.Expect(3));
  const absl::Status packed = ledger_.Pack(swept.values[1].integer, swept.values[2].integer);
  // Rows that cannot be packed stay as they are; ReadLedger reports the error.
  if (!absl::IsDataLoss(packed) && !absl::IsResourceExhausted(packed)) {
    FRESHET_RETURN_IF_ERROR(packed);
  }
  for (int i = 0; i < kCollectSlices; ++i) {
    FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer collected,
                             runner_.Run(trajectory_scripts::kCollect, {StrCat(kCollectEntries)}));
    FRESHET_RETURN_IF_ERROR(collected.Expect(1));
    if (collected.values[0].integer < kCollectEntries) break;
  }
  return swept.values[0].integer;
}

absl::StatusOr<StoreStats> RedisTrajectoryStore::Stats() {
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer, runner_.Run(trajectory_scripts::kStats, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(5));
  FRESHET_ASSIGN_OR_RETURN(StoreStats stats,
                           ParseStats(answer.values[0], answer.values[1], answer.values[4]));
  FRESHET_ASSIGN_OR_RETURN(stats.calls, ParseCalls(answer.values[2], answer.values[3]));
  return stats;
}

absl::StatusOr<Explanation> RedisTrajectoryStore::Explain() {
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kExplain, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return EdgeText(answer.values[0], config_);
}

absl::StatusOr<PromptCursor> RedisTrajectoryStore::Cursor() {
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer, runner_.Run(trajectory_scripts::kCursor, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(5));
  const std::vector<RedisReply>& values = answer.values;
  FRESHET_ASSIGN_OR_RETURN(const int64_t high_water, ParseNumber(values[0].text));
  std::vector<int64_t> live;
  for (size_t i = 1; i < values.size(); ++i) {
    for (const RedisReply& ordinal : values[i].items) {
      FRESHET_ASSIGN_OR_RETURN(live.emplace_back(), ParseNumber(ordinal.text));
    }
  }
  return CursorOf(high_water, std::move(live), config_.origin.cursor);
}

absl::StatusOr<std::vector<DeadLetter>> RedisTrajectoryStore::DeadLetters(int64_t max_letters) {
  if (max_letters < 1) {
    return InvalidArgument("max_letters: ", max_letters, " is too small: use at least 1");
  }
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply,
                           runner_.client().Command({"LRANGE", StrCat(config_.Prefix(), "dead"),
                                                     "0", StrCat(max_letters - 1)}));
  std::vector<DeadLetter> letters;
  for (const RedisReply& entry : reply.items) {
    std::string_view text = entry.text;
    DeadLetter& letter = letters.emplace_back();
    int64_t micros = 0;
    FRESHET_RETURN_IF_ERROR(TakeNumbers(text, ' ', micros, letter.ordinal, letter.attempt));
    letter.time = absl::FromUnixMicros(micros);
    letter.reason = std::string(text);
  }
  return letters;
}

}  // namespace freshet
