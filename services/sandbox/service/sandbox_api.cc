#include "services/sandbox/service/sandbox_api.h"

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

// 429: try again later; 504 is what verl's client repeats.
int StatusOfFault(const absl::Status& fault) {
  return absl::IsResourceExhausted(fault) ? 429 : 504;
}

}  // namespace

std::optional<HttpResponse> SandboxApi::CheckHead(const HttpRequest& head) const {
  if (token_.empty() || head.method != "POST") return std::nullopt;
  const auto given = head.headers.find("authorization");
  if (given != head.headers.end() &&
      runtime::SameSecret(given->second, StrCat("Bearer ", token_))) {
    return std::nullopt;
  }
  return Refuse(401, "the request has not the token of this sandbox");
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
  pool_.Run(*std::move(program), [reply](absl::StatusOr<v1::Outcome> outcome) {
    if (!outcome.ok()) {
      return reply->Send(
          Answer(StatusOfFault(outcome.status()), SandboxErrorJson(Message(outcome.status()))));
    }
    if (!outcome->bad_request().empty()) return reply->Send(Refuse(422, outcome->bad_request()));
    reply->Send(Answer(200, RunJson(*outcome, 0)));
  });
}

void SandboxApi::Submit(const std::string& body, const std::shared_ptr<HttpReply>& reply) const {
  absl::StatusOr<Submission> parsed = ParseSubmission(body, RandomNonce());
  if (!parsed.ok()) return reply->Send(Refuse(422, Message(parsed.status())));
  const auto submission = std::make_shared<const Submission>(*std::move(parsed));
  pool_.Run(submission->program, [reply, submission](absl::StatusOr<v1::Outcome> outcome) {
    if (!outcome.ok()) {
      return reply->Send(Refuse(StatusOfFault(outcome.status()), Message(outcome.status())));
    }
    if (!outcome->bad_request().empty()) return reply->Send(Refuse(422, outcome->bad_request()));
    reply->Send(Answer(200, SubmissionJson(*submission, *outcome)));
  });
}

}  // namespace freshet::sandbox
