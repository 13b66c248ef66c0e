#include "services/reward/service/http_scorer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "job/reward_types.h"
#include "services/http/curl_http_client.h"
#include "services/http/token_file.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstWait = absl::Milliseconds(50);
constexpr absl::Duration kLongestWait = absl::Seconds(1);
constexpr size_t kMaxReplyBytes = size_t{8} << 20;
constexpr size_t kMaxIdle = 16;  // connections

// Debian's, and that of most other systems.
constexpr char kSystemRoots[] = "/etc/ssl/certs/ca-certificates.crt";

// A sample that is lost this often may be what kills the server.
constexpr int kMaxLosses = 2;

constexpr size_t kMaxFileBytes = size_t{16} << 20;  // of roots

// What an answer means: OK, a verdict; UNAVAILABLE, the server is away or busy, or the operator's
// token is wrong; ABORTED, the question may be what it failed on.
absl::Status Meaning(const HttpReply& reply) {
  if (reply.status == 200) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (reply.status >= 500) code = absl::StatusCode::kAborted;
  for (const int waits : {401, 403, 408, 429, 502, 503, 529}) {
    if (reply.status == waits) code = absl::StatusCode::kUnavailable;
  }
  if (reply.status >= 300 && reply.status < 400) {
    return StatusOf(code, "status ", reply.status,
                    ": a redirect, which is not followed; give the address that it leads to");
  }
  return StatusOf(code, "status ", reply.status, ": ", ValidUtf8(reply.body.substr(0, 200)));
}

// A server that the operator offers.
struct OfferedServer {
  const char* name;
  const char* flag;
  const char* absent;  // what is wrong, and what the operator does
};

absl::StatusOr<HttpScorerFactory> Scorers(const OfferedServer& offered,
                                          const runtime::HttpServerFlags& flags,
                                          std::shared_ptr<ScoreCache> cache) {
  if (flags.address.empty()) {
    return HttpScorerFactory(
        [absent = offered.absent](const HttpQuestion&,
                                  absl::Duration) -> absl::StatusOr<std::unique_ptr<Scorer>> {
          return InvalidArgument("type: ", absent);
        });
  }
  const size_t host = flags.address.find("://");
  const size_t slash =
      host == std::string::npos ? std::string::npos : flags.address.find('/', host + 3);
  std::string base = slash == std::string::npos ? "" : flags.address.substr(slash);
  while (base.ends_with('/')) base.pop_back();
  if (flags.address.starts_with("https://")) {
    absl::Status usable;
    if (!flags.ca_file.empty()) usable = ReadFile(flags.ca_file, kMaxFileBytes).status();
    if (usable.ok() && !flags.token_file.empty()) usable = ReadToken(flags.token_file).status();
    if (!usable.ok()) return InvalidArgument(offered.flag, ": ", Message(usable));
  }
  CurlHttpOptions options;
  options.server = flags.address.substr(0, slash);
  options.ca_file = flags.ca_file;
  options.token_file = flags.token_file;
  options.max_idle = kMaxIdle;
  absl::StatusOr<std::unique_ptr<CurlHttpClient>> made = CurlHttpClient::Create(std::move(options));
  if (!made.ok()) return InvalidArgument(offered.flag, ": ", Message(made.status()));
  const std::shared_ptr<HttpClient> server = *std::move(made);
  const auto scorers = std::make_shared<std::atomic<int64_t>>(0);
  return HttpScorerFactory([server, base, name = std::string(offered.name),
                            cache = std::move(cache), scorers](
                               HttpQuestion question,
                               absl::Duration timeout) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    question.path = base + question.path;
    auto scorer = std::make_unique<HttpScorer>(name, server, std::move(question), timeout);
    if (cache == nullptr) return scorer;
    return std::make_unique<CachingScorer>(StrCat(name, " ", ++*scorers), std::move(scorer), cache);
  });
}

}  // namespace

absl::StatusOr<ComponentScore> HttpScorer::Score(const ScoreInput& input) const {
  const absl::Time deadline = absl::Now() + std::min(timeout_, input.timeout);
  Notification cancelled;
  const std::stop_callback on_cancel(input.cancel, [&cancelled] { cancelled.Notify(); });
  HttpCall call;
  call.method = "POST";
  call.path = question_.path;
  call.content_type = "application/json";
  call.max_reply_bytes = kMaxReplyBytes;
  call.cancel = input.cancel;
  FRESHET_ASSIGN_OR_RETURN(std::vector<std::string> bodies, question_.bodies(input));
  std::vector<std::string> answers;
  for (std::string& body : bodies) {
    call.body = std::move(body);
    FRESHET_ASSIGN_OR_RETURN(answers.emplace_back(), Ask(call, input.calls, deadline, cancelled));
  }
  return question_.verdict(answers);
}

absl::Status HttpScorer::CountCall(const CallLimit& limit) const {
  int64_t unused = unused_.load();
  while (unused > 0 && !unused_.compare_exchange_weak(unused, unused - 1)) continue;
  if (unused > 0) return absl::OkStatus();
  const absl::StatusOr<bool> counted =
      limit.budget->Spend(std::string(limit.component), limit.max_calls);
  // No row is to blame, so UNAVAILABLE: rows wait, and are scored once the job goes on.
  if (!counted.ok()) {
    return StatusOf(absl::StatusCode::kUnavailable, name_,
                    ": calls cannot be counted: ", Message(counted.status()));
  }
  if (*counted) return absl::OkStatus();
  return StatusOf(absl::StatusCode::kUnavailable, CallsUsedUp(limit.component, limit.max_calls));
}

absl::StatusOr<std::string> HttpScorer::Ask(HttpCall& call, const CallLimit& limit,
                                            absl::Time deadline, Notification& cancelled) const {
  const bool counts = limit.budget != nullptr && limit.max_calls != 0;
  int losses = 0;
  for (int64_t tries = 1;; ++tries) {
    if (counts) FRESHET_RETURN_IF_ERROR(CountCall(limit));
    call.deadline = deadline - absl::Now();
    absl::StatusOr<HttpReply> reply = server_->Send(call);
    absl::Status status = reply.ok() ? Meaning(*reply) : reply.status();
    const bool refused = reply.ok() && absl::IsUnavailable(status);
    if (counts && (refused || IsNothingSent(status))) ++unused_;
    // The operator's files are unusable, or the server's certificate is, for which no row is to
    // blame.
    if (absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status)) {
      status = StatusOf(absl::StatusCode::kUnavailable, Message(status));
    }
    if (status.ok()) return std::move(reply->body);
    if (absl::IsAborted(status)) ++losses;
    const bool again =
        absl::IsUnavailable(status) || (absl::IsAborted(status) && losses < kMaxLosses);
    const absl::Duration pause = BackoffDelay(tries, kFirstWait, kLongestWait);
    if (!again || absl::Now() + pause >= deadline) {
      return StatusOf(status.code(), name_, ": ", Message(status));
    }
    if (cancelled.WaitFor(pause)) {
      return StatusOf(absl::StatusCode::kCancelled, name_, ": the call was cancelled");
    }
  }
}

absl::StatusOr<HttpScorerFactory> SandboxScorers(const runtime::HttpServerFlags& flags,
                                                 std::shared_ptr<ScoreCache> cache) {
  return Scorers({"sandbox", "--sandbox",
                  "no sandbox is offered here; the operator starts freshet-sandbox and gives its "
                  "address as --sandbox"},
                 flags, std::move(cache));
}

absl::StatusOr<HttpScorerFactory> JudgeScorers(runtime::HttpServerFlags flags,
                                               std::shared_ptr<ScoreCache> cache) {
  if (flags.ca_file.empty()) flags.ca_file = kSystemRoots;
  return Scorers({"judge", "--judge",
                  "no judge is offered here; the operator gives the address of an "
                  "OpenAI-compatible server as --judge"},
                 flags, std::move(cache));
}

absl::StatusOr<HttpScorerFactory> RewardModelScorers(runtime::HttpServerFlags flags,
                                                     std::shared_ptr<ScoreCache> cache) {
  if (flags.ca_file.empty()) flags.ca_file = kSystemRoots;
  return Scorers({"reward model", "--reward-model",
                  "no reward model is offered here; the operator gives the address of its server "
                  "as --reward-model"},
                 flags, std::move(cache));
}

}  // namespace freshet
