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

constexpr std::string_view kCodes[] = {
    "OK",    "GONE",  "FENCED",   "PRECONDITION", "INVALID", "RETRY",  "REVOKED",
    "DEAD",  "DONE",  "MISMATCH", "OTHER",        "RANGE",   "INDEX",  "RESPONSE",
    "FIELD", "BATCH", "WAIT",     "PAUSED",       "RECEIPT", "DIGEST", "MISSING"};

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
      config_(config),
      prefix_(config.Prefix()),
      generation_(std::move(generation)),
      threshold_us_(StrCat(std::max<int64_t>(
          0,
          absl::ToInt64Microseconds(settings.outage_threshold.value_or(
              settings.clock == nullptr ? config.options.lease_ttl / 4 : absl::ZeroDuration()))))),
      clock_(settings.clock),
      on_script_(settings.on_script) {}

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
  answer.code = std::move(reply.items[0].text);
  if (std::find(std::begin(kCodes), std::end(kCodes), answer.code) == std::end(kCodes)) {
    return Internal("redis script: unknown code ", answer.code.substr(0, 40));
  }
  feed_.Merge(reply.items[1].text);
  answer.values.assign(std::make_move_iterator(reply.items.begin() + 2),
                       std::make_move_iterator(reply.items.end()));
  if (answer.code == "GONE") {
    return NotFound("the store of job ", config_.options.job,
                    " was deleted or recreated: open it again");
  }
  const std::string text = answer.values.empty() ? "" : answer.values[0].text;
  if (answer.code == "PRECONDITION") return FailedPrecondition(text);
  if (answer.code == "INVALID") return InvalidArgument(text);
  if (answer.code == "FENCED") return StatusOf(absl::StatusCode::kAborted, text);
  return answer;
}

absl::StatusOr<ScriptAnswer> RedisScriptRunner::RunUntil(const RedisScript& script,
                                                         std::vector<RedisBlob> blobs,
                                                         const MakeArgs& make_args,
                                                         const Done& done) {
  Commands sets;
  sets.reserve(blobs.size() + 1);
  for (RedisBlob& blob : blobs) {
    // NX: on a retry the bytes may already exist, possibly permanently.
    sets.push_back({"SET", StrCat(prefix_, "b:", blob.name), "", "PX", kOrphanMillis, "NX"});
    sets.back()[2] = std::move(blob.bytes);
  }
  for (int i = 0; i < kMaxTries; ++i) {
    FRESHET_ASSIGN_OR_RETURN(ScriptAnswer answer, Send(script, make_args(), sets));
    FRESHET_ASSIGN_OR_RETURN(const bool is_done, done(answer));
    if (is_done) return answer;
    FRESHET_RETURN_IF_ERROR(answer.bytes);
  }
  return StatusOf(absl::StatusCode::kUnavailable, "redis: bytes written for ", script.name,
                  " expired ", kMaxTries, " times before it ran");
}

absl::StatusOr<ScriptAnswer> RedisScriptRunner::Run(const RedisScript& script,
                                                    std::vector<std::string> args,
                                                    std::vector<RedisBlob> blobs) {
  return RunUntil(
      script, std::move(blobs), [&args] { return args; },
      [](const ScriptAnswer& answer) { return answer.code != "RETRY"; });
}

}  // namespace freshet
