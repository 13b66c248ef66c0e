#include "rollout/environment/http/http_agent_client.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/http_address.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/host_lookup.h"

namespace freshet {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr size_t kMaxExcerptBytes = 200;
constexpr int kSeedBits = 53;  // JSON readers may use doubles

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Excerpt(const std::string& body) {
  return body.size() <= kMaxExcerptBytes ? body : body.substr(0, kMaxExcerptBytes) + "...";
}

absl::StatusCode CodeOf(int http_status) {
  if (http_status == 429) return absl::StatusCode::kResourceExhausted;
  if (http_status == 408 || http_status == 504) return absl::StatusCode::kDeadlineExceeded;
  if (http_status == 400 || http_status == 422) return absl::StatusCode::kInvalidArgument;
  return absl::StatusCode::kUnavailable;
}

}  // namespace

std::string AgentRequestBody(const AgentTask& task) {
  Json body = {{"base_url", task.base_url},
               {"api_key", task.api_key},
               {"model", task.model},
               {"seed", task.seed >> (64 - kSeedBits)},
               {"timeout_s", absl::ToDoubleSeconds(task.timeout)}};
  if (!task.sample.empty()) body["sample"] = task.sample;
  Json row = Json::object();
  for (const auto& [name, value] : task.row) {
    if (name != "prompt") row[name] = value;
  }
  const auto prompt = task.row.find("prompt");
  if (prompt != task.row.end()) {
    Json chat;
    if (task.chat) {
      absl::StatusOr<Json> parsed = ParseOrderedJson(prompt->second, "prompt");
      if (parsed.ok()) chat = *std::move(parsed);
    }
    if (!chat.is_object()) body["prompt"] = prompt->second;
    for (const char* name : {"messages", "tools"}) {
      if (chat.is_object() && chat.contains(name)) body[name] = chat[name];
    }
  }
  body["row"] = std::move(row);
  body["options"] = Json::object();
  for (const auto& [name, value] : task.options) body["options"][name] = value;
  return Dump(body);
}

absl::StatusOr<AgentReward> ParseAgentAnswer(int http_status, const std::string& body) {
  if (http_status != 200) {
    return StatusOf(CodeOf(http_status), "the agent answered with HTTP status ", http_status,
                    body.empty() ? "" : ": ", Excerpt(body));
  }
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(body, "the agent's answer");
  if (!parsed.ok()) return Internal(Message(parsed.status()));
  if (!parsed->is_object() || !parsed->contains("reward") || !(*parsed)["reward"].is_number()) {
    return Internal("the agent's answer is ", Excerpt(body), ", want {\"reward\": NUMBER}");
  }
  AgentReward result;
  result.reward = (*parsed)["reward"].get<double>();
  if (!std::isfinite(result.reward)) return Internal("the agent's reward is not finite");
  for (const auto& [name, value] : {std::pair("truncated", &result.truncated),
                                    std::pair("requests_optional", &result.requests_optional)}) {
    const nlohmann::json given = parsed->value(name, nlohmann::json(false));
    if (!given.is_boolean()) {
      return Internal(name, " in the agent's answer is ", JsonExcerpt(given),
                      ", want true or false");
    }
    *value = given.get<bool>();
  }
  return result;
}

absl::StatusOr<std::unique_ptr<HttpAgentClient>> HttpAgentClient::Open(const std::string& address) {
  const std::optional<HttpAddress> parsed = ParseHttpAddress(address);
  if (!parsed.has_value()) {
    return InvalidArgument("agent ", address, " is neither HOST:PORT nor http://HOST:PORT/PATH");
  }
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<runtime::HttpCalls> calls,
                           runtime::OpenHttpCalls(parsed->server, &runtime::LookUpHost));
  return std::make_unique<HttpAgentClient>(std::move(calls), parsed->path);
}

void HttpAgentClient::Start(int64_t episode, const AgentTask& task) {
  runtime::HttpCall call;
  call.target = path_;
  call.body = AgentRequestBody(task);
  call.timeout = task.timeout;
  call.max_bytes = kMaxAnswerBytes;
  const int64_t number = calls_->Start(std::move(call));
  open_[number].episode = episode;
  by_episode_[episode] = number;
}

void HttpAgentClient::Stop(int64_t episode) {
  const auto found = by_episode_.find(episode);
  if (found == by_episode_.end()) return;
  calls_->Stop(found->second);
  open_.erase(found->second);
  by_episode_.erase(found);
}

std::vector<AgentEvent> HttpAgentClient::Poll() {
  std::vector<AgentEvent> events;
  if (open_.empty()) return events;
  for (runtime::HttpCallEvent& event : calls_->Take(absl::ZeroDuration())) {
    const auto found = open_.find(event.call);
    if (found == open_.end()) continue;
    Call& call = found->second;
    if (event.status != 0) call.status = event.status;
    call.body += event.data;
    if (!event.end) continue;
    AgentEvent& result = events.emplace_back();
    result.episode = call.episode;
    if (event.error.ok()) {
      result.reward = ParseAgentAnswer(call.status, call.body);
    } else {
      // RESOURCE_EXHAUSTED here is not the agent's.
      const bool exhausted = absl::IsResourceExhausted(event.error);
      result.reward = StatusOf(exhausted ? absl::StatusCode::kInternal : event.error.code(),
                               "the agent: ", Message(event.error));
    }
    by_episode_.erase(call.episode);
    open_.erase(found);
  }
  return events;
}

}  // namespace freshet
