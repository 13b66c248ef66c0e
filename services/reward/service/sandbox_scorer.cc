#include "services/reward/service/sandbox_scorer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/http/curl_http_client.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstWait = absl::Milliseconds(50);
constexpr absl::Duration kLongestWait = absl::Seconds(1);
constexpr size_t kMaxReplyBytes = size_t{64} << 20;
constexpr size_t kMaxIdle = 16;  // connections

// A sample whose program is lost this often may be what kills the sandbox.
constexpr int kMaxLosses = 2;

// What an answer means: OK, a verdict; UNAVAILABLE, the sandbox is away or busy; ABORTED, it lost
// the program.
absl::Status Meaning(const HttpReply& reply) {
  if (reply.status == 200) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (reply.status == 504) code = absl::StatusCode::kAborted;
  if (reply.status == 429 || reply.status == 502 || reply.status == 503) {
    code = absl::StatusCode::kUnavailable;
  }
  return StatusOf(code, "the sandbox answers ", reply.status, ": ", reply.body.substr(0, 200));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SandboxScorer>> SandboxScorer::Create(
    std::shared_ptr<HttpClient> sandbox, CodeReward reward) {
  absl::StatusOr<TextTemplate> tests = TextTemplate::Parse(reward.tests);
  if (!tests.ok()) return InvalidArgument("text: ", Message(tests.status()));
  return std::unique_ptr<SandboxScorer>(
      new SandboxScorer(std::move(sandbox), std::move(reward), *std::move(tests)));
}

absl::StatusOr<ComponentScore> SandboxScorer::Score(const ScoreInput& input) const {
  const absl::Time deadline = absl::Now() + std::min(reward_.timeout, input.timeout);
  Notification cancelled;
  const std::stop_callback on_cancel(input.cancel, [&cancelled] { cancelled.Notify(); });
  absl::StatusOr<std::string> tests = tests_.Render(input.attributes);
  if (!tests.ok()) return FailedPrecondition(Message(tests.status()), " in the row");
  HttpCall call;
  call.method = "POST";
  call.path = "/submit";
  call.content_type = "application/json";
  call.max_reply_bytes = kMaxReplyBytes;
  call.cancel = input.cancel;
  FRESHET_ASSIGN_OR_RETURN(call.body, SubmissionBody(reward_, *tests, input.completion));
  int losses = 0;
  for (int64_t tries = 1;; ++tries) {
    call.deadline = deadline - absl::Now();
    const absl::StatusOr<HttpReply> reply = sandbox_->Send(call);
    const absl::Status status = reply.ok() ? Meaning(*reply) : reply.status();
    if (status.ok()) return VerdictOf(reward_, reply->body);
    if (absl::IsAborted(status)) ++losses;
    const bool again =
        absl::IsUnavailable(status) || (absl::IsAborted(status) && losses < kMaxLosses);
    const absl::Duration pause = BackoffDelay(tries, kFirstWait, kLongestWait);
    if (!again || absl::Now() + pause >= deadline) {
      return StatusOf(status.code(), "sandbox: ", Message(status));
    }
    if (cancelled.WaitFor(pause)) return absl::CancelledError("sandbox: the call was cancelled");
  }
}

absl::StatusOr<CodeScorerFactory> SandboxScorers(const runtime::SandboxFlags& flags,
                                                 std::shared_ptr<ScoreCache> cache) {
  if (flags.address.empty()) {
    return CodeScorerFactory([](const CodeReward&) -> absl::StatusOr<std::unique_ptr<Scorer>> {
      return InvalidArgument(
          "type: no sandbox is offered here; the operator starts freshet-sandbox and gives its "
          "address as --sandbox");
    });
  }
  CurlHttpOptions options;
  options.server = flags.address;
  options.ca_file = flags.ca_file;
  options.token_file = flags.token_file;
  options.max_idle = kMaxIdle;
  absl::StatusOr<std::unique_ptr<CurlHttpClient>> made = CurlHttpClient::Create(std::move(options));
  if (!made.ok()) return InvalidArgument("--sandbox: ", Message(made.status()));
  const std::shared_ptr<HttpClient> sandbox = *std::move(made);
  const auto scorers = std::make_shared<std::atomic<int64_t>>(0);
  return CodeScorerFactory([sandbox, cache = std::move(cache), scorers](const CodeReward& reward)
                               -> absl::StatusOr<std::unique_ptr<Scorer>> {
    FRESHET_ASSIGN_OR_RETURN(auto scorer, SandboxScorer::Create(sandbox, reward));
    if (cache == nullptr) return scorer;
    return std::make_unique<CachingScorer>(StrCat("code ", ++*scorers), std::move(scorer), cache);
  });
}

}  // namespace freshet
