#include "services/sandbox/service/sandbox_api.h"

#include <stop_token>
#include <utility>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "services/runtime/same_secret.h"
#include "services/sandbox/service/run_request.h"
#include "services/sandbox/service/submission.h"

namespace freshet::sandbox {

using nlohmann::json;
using runtime::HttpReply;
using runtime::HttpRequest;
using runtime::HttpResponse;

namespace {

constexpr char kJson[] = "application/json";

HttpResponse Answer(int status, const json& body) {
  return {status, kJson, body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpResponse Refuse(int status, const std::string& message) {
  return Answer(status, {{"detail", ValidUtf8(message)}});
}

// 429 and 503: try again later; 504, a program that lost its worker, is what verl's client repeats.
int StatusOfFault(const absl::Status& fault) {
  if (absl::IsResourceExhausted(fault)) return 429;
  return absl::IsUnavailable(fault) ? 504 : 503;
}

// Requested when the client goes away.
std::stop_token Abandoned(HttpReply& reply) {
  std::stop_source source;
  reply.OnClosed([source]() mutable { source.request_stop(); });
  return source.get_token();
}

}  // namespace

std::optional<HttpResponse> SandboxApi::CheckHead(const HttpRequest& head) const {
  if (token_.empty() || head.method != "POST") return std::nullopt;
  const auto given = head.headers.find("authorization");
  if (given != head.headers.end() &&
      runtime::SameSecret(given->second, StrCat("Bearer ", token_))) {
    return std::nullopt;
  }
  return Refuse(401, "the header Authorization does not have this sandbox's token");
}

bool SandboxApi::Handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) const {
  if (request.path == "/v1/ping") {
    reply->Send({200, kJson, "\"pong\""});
  } else if (request.path != "/run_code" && request.path != "/submit") {
    return false;
  } else if (request.method != "POST") {
    reply->Send(Refuse(405, StrCat(request.path, " takes POST")));
  } else if (request.path == "/run_code") {
    RunCode(request.body, reply);
  } else {
    Submit(request.body, reply);
  }
  return true;
}

void SandboxApi::RunCode(const std::string& body, const std::shared_ptr<HttpReply>& reply) const {
  absl::StatusOr<v1::Program> program = ParseRunRequest(body);
  if (!program.ok()) return reply->Send(Refuse(422, Message(program.status())));
  pool_.Run(
      *std::move(program),
      [reply](absl::StatusOr<v1::Outcome> outcome) {
        if (!outcome.ok()) {
          return reply->Send(
              Answer(StatusOfFault(outcome.status()), SandboxErrorJson(Message(outcome.status()))));
        }
        if (!outcome->bad_request().empty())
          return reply->Send(Refuse(422, outcome->bad_request()));
        reply->Send(Answer(200, RunJson(*outcome, 0)));
      },
      Abandoned(*reply));
}

void SandboxApi::Submit(const std::string& body, const std::shared_ptr<HttpReply>& reply) const {
  absl::StatusOr<Submission> parsed = ParseSubmission(body, RandomNonce());
  if (!parsed.ok()) return reply->Send(Refuse(422, Message(parsed.status())));
  const auto submission = std::make_shared<const Submission>(*std::move(parsed));
  pool_.Run(
      submission->program,
      [reply, submission](absl::StatusOr<v1::Outcome> outcome) {
        if (!outcome.ok()) {
          return reply->Send(Refuse(StatusOfFault(outcome.status()), Message(outcome.status())));
        }
        if (!outcome->bad_request().empty())
          return reply->Send(Refuse(422, outcome->bad_request()));
        reply->Send(Answer(200, SubmissionJson(*submission, *outcome)));
      },
      Abandoned(*reply));
}

}  // namespace freshet::sandbox
