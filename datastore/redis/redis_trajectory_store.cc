#include "datastore/redis/redis_trajectory_store.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_reading.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Expiry of bytes that no script has accepted; far longer than any call.
constexpr const char* kOrphanMillis = "300000";
// Tries of an operation whose bytes expired before its script ran.
constexpr int kMaxTries = 3;

std::string ThresholdMicros(const RedisStoreSettings& settings, const StoreOptions& options) {
  absl::Duration threshold = absl::ZeroDuration();
  if (settings.clock == nullptr) threshold = options.lease_ttl / 4;
  if (settings.outage_threshold.has_value()) threshold = *settings.outage_threshold;
  return StrCat(std::max<int64_t>(0, absl::ToInt64Microseconds(threshold)));
}

std::string NowMicros(const Clock* clock) {
  return clock == nullptr ? "" : StrCat(absl::ToUnixMicros(clock->Now()));
}

// What create.lua found or wrote.
struct StoredConfig {
  std::string json;        // "" if there was none
  std::string generation;  // "" if there is none now
};

absl::StatusOr<StoredConfig> ReadOrWrite(RedisClient& client, const std::string& prefix,
                                         const std::vector<std::string>& args) {
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply, client.Run(trajectory_scripts::kCreate,
                                                              {StrCat(prefix, "state")}, args));
  if (reply.items.size() != 2) return Internal("redis script: create gave no pair");
  return StoredConfig{reply.items[0].text, reply.items[1].text};
}

}  // namespace

RedisTrajectoryStore::RedisTrajectoryStore(std::shared_ptr<RedisClient> client,
                                           RedisStoreConfig config, std::string generation,
                                           RedisStoreSettings settings)
    : client_(std::move(client)),
      config_(std::move(config)),
      settings_(std::move(settings)),
      prefix_(config_.Prefix()),
      generation_(std::move(generation)),
      threshold_us_(ThresholdMicros(settings_, config_.options)),
      feed_(client_, prefix_) {}

absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> RedisTrajectoryStore::Create(
    std::shared_ptr<RedisClient> client, StoreOptions options, StoreOrigin origin,
    RedisStoreSettings settings) {
  RedisStoreConfig config{std::move(options), std::move(origin)};
  FRESHET_RETURN_IF_ERROR(config.Validate());
  const std::string digest = config.origin.digest.empty() ? InitialDigest() : config.origin.digest;
  std::vector<std::string> args = {config.Prefix(),
                                   RedisStoreConfigToJson(config),
                                   NowMicros(settings.clock),
                                   digest,
                                   StrCat(config.origin.policy.version),
                                   config.origin.resumed ? "0" : "1",
                                   StrCat(config.origin.cursor.above.size())};
  for (const int64_t ordinal : config.origin.cursor.above) args.push_back(StrCat(ordinal));
  const auto script_options = config.ScriptOptions();
  args.push_back(StrCat(script_options.size()));
  for (const auto& values : {script_options, config.FirstState()}) {
    for (const auto& [name, value] : values) {
      args.push_back(name);
      args.push_back(value);
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const StoredConfig known, ReadOrWrite(*client, config.Prefix(), args));
  if (!known.json.empty()) {
    FRESHET_ASSIGN_OR_RETURN(const RedisStoreConfig stored, ParseRedisStoreConfig(known.json));
    const std::string difference = FirstDifference(stored, config);
    if (!difference.empty()) {
      return FailedPrecondition("job ", config.options.job,
                                " has a store with other values: ", difference);
    }
  }
  if (known.generation.empty()) {
    return FailedPrecondition("the store of job ", config.options.job,
                              " is partially deleted: delete the job first");
  }
  return std::unique_ptr<RedisTrajectoryStore>(
      new RedisTrajectoryStore(std::move(client), std::move(config), known.generation, settings));
}

absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> RedisTrajectoryStore::Open(
    std::shared_ptr<RedisClient> client, const std::string& job, RedisStoreSettings settings) {
  FRESHET_RETURN_IF_ERROR(ValidateJobName(job));
  const std::string prefix = StrCat("{", job, "}:");
  FRESHET_ASSIGN_OR_RETURN(const StoredConfig known, ReadOrWrite(*client, prefix, {prefix, ""}));
  if (known.json.empty() || known.generation.empty()) return NotFound("job ", job, " has no store");
  FRESHET_ASSIGN_OR_RETURN(RedisStoreConfig config, ParseRedisStoreConfig(known.json));
  return std::unique_ptr<RedisTrajectoryStore>(
      new RedisTrajectoryStore(std::move(client), std::move(config), known.generation, settings));
}

absl::Status RedisTrajectoryStore::Answer::Expect(size_t num_values) const {
  if (values.size() == num_values) return absl::OkStatus();
  return Internal("redis script: an answer with ", values.size(), " values, not ", num_values);
}

std::string RedisTrajectoryStore::ScriptToken(int64_t token) const {
  // Tokens of an earlier store are below the base and match no script token.
  return StrCat(token - config_.origin.TokenBase());
}

std::vector<std::string> RedisTrajectoryStore::ScriptArgs(std::vector<std::string> args) const {
  std::vector<std::string> all = {prefix_, NowMicros(settings_.clock), generation_, threshold_us_};
  all.insert(all.end(), std::make_move_iterator(args.begin()), std::make_move_iterator(args.end()));
  return all;
}

RedisTrajectoryStore::Commands RedisTrajectoryStore::SetCommands(std::vector<Blob> blobs) const {
  Commands sets;
  sets.reserve(blobs.size() + 1);
  for (Blob& blob : blobs) {
    // NX: on a retry the bytes may already exist, possibly permanently.
    std::vector<std::string>& set = sets.emplace_back();
    set.reserve(6);
    set.push_back("SET");
    set.push_back(StrCat(prefix_, "b:", blob.name));
    set.push_back(std::move(blob.bytes));
    for (const char* arg : {"PX", kOrphanMillis, "NX"}) set.push_back(arg);
  }
  return sets;
}

absl::StatusOr<RedisTrajectoryStore::Answer> RedisTrajectoryStore::Send(
    const RedisScript& script, std::vector<std::string> args, Commands& sets) {
  sets.push_back(
      client_->ScriptCommand(script, {StrCat(prefix_, "state")}, ScriptArgs(std::move(args))));
  const absl::Time start = SystemClock::Get().Now();
  auto replies = client_->Pipeline(sets);
  sets.pop_back();
  FRESHET_RETURN_IF_ERROR(replies.status());
  if (settings_.on_script) settings_.on_script(script.name, SystemClock::Get().Now() - start);
  if (replies->size() != sets.size() + 1) return Internal("redis: a pipeline lost replies");
  FRESHET_RETURN_IF_ERROR(replies->back().status());
  FRESHET_ASSIGN_OR_RETURN(Answer answer, Accept(*std::move(replies->back())));
  replies->pop_back();
  for (const absl::StatusOr<RedisReply>& reply : *replies) answer.bytes.Update(reply.status());
  return answer;
}

absl::StatusOr<RedisTrajectoryStore::Answer> RedisTrajectoryStore::Accept(RedisReply reply) {
  if (reply.items.size() < 2) return Internal("redis script: an answer without a code");
  static constexpr std::pair<std::string_view, Code> kCodes[] = {
      {"OK", Code::kOk},           {"GONE", Code::kGone},
      {"FENCED", Code::kFenced},   {"PRECONDITION", Code::kPrecondition},
      {"INVALID", Code::kInvalid}, {"RETRY", Code::kRetry},
      {"REVOKED", Code::kRevoked}, {"DEAD", Code::kDead},
      {"DONE", Code::kDone},       {"MISMATCH", Code::kMismatch},
      {"INDEX", Code::kIndex},     {"RESPONSE", Code::kResponse},
      {"FIELD", Code::kField},     {"BATCH", Code::kBatch},
      {"WAIT", Code::kWait},       {"PAUSED", Code::kPaused},
      {"RECEIPT", Code::kReceipt}, {"DIGEST", Code::kDigest},
  };
  Answer answer;
  const auto* const code =
      std::find_if(std::begin(kCodes), std::end(kCodes),
                   [&](const auto& known) { return known.first == reply.items[0].text; });
  if (code == std::end(kCodes)) {
    return Internal("redis script: unknown code ", reply.items[0].text.substr(0, 40));
  }
  answer.code = code->second;
  feed_.Merge(reply.items[1].text);
  answer.values.assign(std::make_move_iterator(reply.items.begin() + 2),
                       std::make_move_iterator(reply.items.end()));
  if (answer.code == Code::kGone) {
    return NotFound("the store of job ", config_.options.job,
                    " was deleted or recreated: open it again");
  }
  const std::string text = answer.values.empty() ? "" : answer.values[0].text;
  if (answer.code == Code::kPrecondition) return FailedPrecondition(text);
  if (answer.code == Code::kInvalid) return InvalidArgument(text);
  if (answer.code == Code::kFenced) return StatusOf(absl::StatusCode::kAborted, text);
  return answer;
}

int64_t RedisTrajectoryStore::PressedPercent() {
  {
    MutexLock lock(mu_);
    const absl::Time now = SystemClock::Get().Now();
    if (now - memory_read_ < settings_.memory_period) return pressed_percent_;
    memory_read_ = now;
  }
  const absl::StatusOr<RedisReply> info = client_->Command({"INFO", "memory"});
  MemoryPressure pressure;
  if (info.ok()) pressure = DecidePressure(ParseRedisInfo(info->text));
  MutexLock lock(mu_);
  return pressed_percent_ = pressure.pressed ? pressure.percent : 0;
}

absl::StatusOr<RedisTrajectoryStore::Answer> RedisTrajectoryStore::Run(
    const RedisScript& script, std::vector<std::string> args, std::vector<Blob> blobs) {
  Commands sets = SetCommands(std::move(blobs));
  for (int i = 0; i < kMaxTries; ++i) {
    FRESHET_ASSIGN_OR_RETURN(Answer answer, Send(script, args, sets));
    if (answer.code != Code::kRetry) return answer;
    FRESHET_RETURN_IF_ERROR(answer.bytes);
  }
  return StatusOf(absl::StatusCode::kUnavailable, "redis: bytes written for ", script.name,
                  " expired ", kMaxTries, " times before it ran");
}

}  // namespace freshet
