#include "datastore/redis/redis_script_runner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Expiry of bytes that no script has accepted; far longer than any call.
constexpr const char* kOrphanMillis = "300000";
// Tries of an operation whose bytes expired before its script ran.
constexpr int kMaxTries = 3;

constexpr std::pair<std::string_view, ScriptCode> kCodes[] = {
    {"OK", ScriptCode::kOk},           {"GONE", ScriptCode::kGone},
    {"FENCED", ScriptCode::kFenced},   {"PRECONDITION", ScriptCode::kPrecondition},
    {"INVALID", ScriptCode::kInvalid}, {"RETRY", ScriptCode::kRetry},
    {"REVOKED", ScriptCode::kRevoked}, {"DEAD", ScriptCode::kDead},
    {"DONE", ScriptCode::kDone},       {"MISMATCH", ScriptCode::kMismatch},
    {"INDEX", ScriptCode::kIndex},     {"RESPONSE", ScriptCode::kResponse},
    {"FIELD", ScriptCode::kField},     {"BATCH", ScriptCode::kBatch},
    {"WAIT", ScriptCode::kWait},       {"PAUSED", ScriptCode::kPaused},
    {"RECEIPT", ScriptCode::kReceipt}, {"DIGEST", ScriptCode::kDigest},
};

std::string ThresholdMicros(const RedisStoreSettings& settings, const StoreOptions& options) {
  absl::Duration threshold = absl::ZeroDuration();
  if (settings.clock == nullptr) threshold = options.lease_ttl / 4;
  if (settings.outage_threshold.has_value()) threshold = *settings.outage_threshold;
  return StrCat(std::max<int64_t>(0, absl::ToInt64Microseconds(threshold)));
}

}  // namespace

absl::Status ScriptAnswer::Expect(size_t num_values) const {
  if (values.size() == num_values) return absl::OkStatus();
  return Internal("redis script: an answer with ", values.size(), " values, not ", num_values);
}

std::string ScriptTime(const Clock* clock) {
  return clock == nullptr ? "" : StrCat(absl::ToUnixMicros(clock->Now()));
}

RedisScriptRunner::RedisScriptRunner(std::shared_ptr<RedisClient> client, RedisChangeFeed& feed,
                                     const RedisStoreConfig& config, std::string generation,
                                     const RedisStoreSettings& settings)
    : client_(std::move(client)),
      feed_(feed),
      job_(config.options.job),
      prefix_(config.Prefix()),
      generation_(std::move(generation)),
      threshold_us_(ThresholdMicros(settings, config.options)),
      clock_(settings.clock),
      on_script_(settings.on_script) {}

RedisScriptRunner::Commands RedisScriptRunner::SetCommands(std::vector<RedisBlob> blobs) const {
  Commands sets;
  sets.reserve(blobs.size() + 1);
  for (RedisBlob& blob : blobs) {
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

absl::StatusOr<ScriptAnswer> RedisScriptRunner::Send(const RedisScript& script,
                                                     std::vector<std::string> args,
                                                     Commands& sets) {
  std::vector<std::string> all = {prefix_, ScriptTime(clock_), generation_, threshold_us_};
  all.insert(all.end(), std::make_move_iterator(args.begin()), std::make_move_iterator(args.end()));
  sets.push_back(client_->ScriptCommand(script, {StrCat(prefix_, "state")}, all));
  const absl::Time start = SystemClock::Get().Now();
  auto replies = client_->Pipeline(sets);
  sets.pop_back();
  FRESHET_RETURN_IF_ERROR(replies.status());
  if (on_script_) on_script_(script.name, SystemClock::Get().Now() - start);
  if (replies->size() != sets.size() + 1) return Internal("redis: a pipeline lost replies");
  FRESHET_RETURN_IF_ERROR(replies->back().status());
  FRESHET_ASSIGN_OR_RETURN(ScriptAnswer answer, Accept(*std::move(replies->back())));
  replies->pop_back();
  for (const absl::StatusOr<RedisReply>& reply : *replies) answer.bytes.Update(reply.status());
  return answer;
}

absl::StatusOr<ScriptAnswer> RedisScriptRunner::Accept(RedisReply reply) {
  if (reply.items.size() < 2) return Internal("redis script: an answer without a code");
  ScriptAnswer answer;
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
  if (answer.code == ScriptCode::kGone) {
    return NotFound("the store of job ", job_, " was deleted or made anew: open it again");
  }
  const std::string text = answer.values.empty() ? "" : answer.values[0].text;
  if (answer.code == ScriptCode::kPrecondition) return FailedPrecondition(text);
  if (answer.code == ScriptCode::kInvalid) return InvalidArgument(text);
  if (answer.code == ScriptCode::kFenced) return StatusOf(absl::StatusCode::kAborted, text);
  return answer;
}

absl::Status RedisScriptRunner::RunUntil(const RedisScript& script, std::vector<RedisBlob> blobs,
                                         const MakeArgs& make_args, const Done& done) {
  Commands sets = SetCommands(std::move(blobs));
  for (int i = 0; i < kMaxTries; ++i) {
    FRESHET_ASSIGN_OR_RETURN(ScriptAnswer answer, Send(script, make_args(), sets));
    const absl::Status bytes = answer.bytes;
    FRESHET_ASSIGN_OR_RETURN(const bool is_done, done(std::move(answer)));
    if (is_done) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(bytes);
  }
  return StatusOf(absl::StatusCode::kUnavailable, "redis: bytes written for ", script.name,
                  " were gone ", kMaxTries, " times when it ran");
}

absl::StatusOr<ScriptAnswer> RedisScriptRunner::Run(const RedisScript& script,
                                                    std::vector<std::string> args,
                                                    std::vector<RedisBlob> blobs) {
  ScriptAnswer last;
  const auto done = [&last](ScriptAnswer answer) {
    last = std::move(answer);
    return last.code != ScriptCode::kRetry;
  };
  FRESHET_RETURN_IF_ERROR(RunUntil(
      script, std::move(blobs), [&args] { return args; }, done));
  return last;
}

absl::StatusOr<std::vector<RedisReply>> RedisScriptRunner::RunForValues(
    const RedisScript& script, size_t num_values, std::vector<std::string> args,
    std::vector<RedisBlob> blobs) {
  FRESHET_ASSIGN_OR_RETURN(ScriptAnswer answer, Run(script, std::move(args), std::move(blobs)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(num_values));
  return std::move(answer.values);
}

}  // namespace freshet
