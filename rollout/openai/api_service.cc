#include "rollout/openai/api_service.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "base/digest.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/openai/api_error.h"
#include "rollout/openai/json_response.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::openai {
namespace {

using runtime::HttpReply;
using runtime::HttpRequest;
using runtime::HttpResponse;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kPooling[] = "/pooling";
constexpr char kModels[] = "/v1/models";

bool IsCompletion(const std::string& path) { return path == kCompletions || path == kChat; }
bool TakesPost(const std::string& path) { return IsCompletion(path) || path == kPooling; }

std::string HeaderOf(const HttpRequest& request, const std::string& name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

uint64_t Entropy() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

ApiService::ApiService(ApiServiceOptions options, const Tokenizer& tokenizer,
                       GenerationQueue& queue, const Clock& clock)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      queue_(queue),
      clock_(clock),
      created_(absl::ToUnixSeconds(clock.Now())),
      entropy_(Entropy()),
      writers_(options_.writer_threads, options_.max_unwritten),
      parsers_(options_.parser_threads, static_cast<size_t>(options_.max_unparsed)) {}

HttpResponse ApiService::Refusal(int status, const std::string& message) {
  const nlohmann::ordered_json error = {
      {"message", message},
      {"type", status < 500 ? "BadRequestError" : "InternalServerError"},
      {"param", nullptr},
      {"code", status}};
  return JsonResponse(status, nlohmann::ordered_json{{"error", error}}.dump());
}

ApiStats ApiService::stats() const {
  const MutexLock lock(mu_);
  return stats_;
}

void ApiService::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const std::string path = request.path;
  absl::Status status = CheckRoute(request);
  if (status.ok() && !TakesPost(path)) {
    absl::StatusOr<HttpResponse> response = Get(path);
    if (response.ok()) return reply->Send(*std::move(response));
    status = response.status();
  }
  if (status.ok()) status = Post(std::move(request), reply);
  if (!status.ok()) reply->Send(Failure(path, status));
}

std::optional<HttpResponse> ApiService::CheckHead(const HttpRequest& head) const {
  const absl::Status status = CheckRoute(head);
  if (status.ok()) return std::nullopt;
  return Failure(head.path, status);
}

absl::Status ApiService::CheckRoute(const HttpRequest& head) const {
  FRESHET_RETURN_IF_ERROR(CheckCaller(head));
  const std::string& path = head.path;
  const bool post = TakesPost(path);
  if (post == (head.method == "POST")) return post ? CheckHeadOfModel(path) : absl::OkStatus();
  if (!post && path != "/health" && !absl::StartsWith(path, kModels)) {
    return NotFound(path, ": no such path");
  }
  return absl::UnimplementedError(
      StrCat(path, " wants ", post ? "POST" : "GET", ", not ", head.method));
}

absl::Status ApiService::CheckHeadOfModel(const std::string& path) const {
  const bool scalar = options_.model.scalar_head;
  if (scalar == (path == kPooling)) return absl::OkStatus();
  return NotFound(path, ": ", options_.model_name,
                  scalar ? " is a reward model, which generates no text; use /pooling"
                         : " has no scalar head; use /v1/completions or /v1/chat/completions");
}

HttpResponse ApiService::Failure(const std::string& path, const absl::Status& status) const {
  if (TakesPost(path) && options_.counts != nullptr) options_.counts->Count(status);
  return ErrorResponse(status);
}

absl::Status ApiService::CheckCaller(const HttpRequest& request) const {
  const bool api = absl::StartsWith(request.path, "/v1") || request.path == kPooling;
  absl::StatusOr<std::shared_ptr<Session>> session = nullptr;
  if (api) session = FindSession(request);
  // DNS rebinding: a web page cannot know a session's key, so such a request may name any host.
  if (session.ok() && *session != nullptr) return absl::OkStatus();
  if (options_.local_hosts_only && !request.host.empty() && !runtime::IsLocalHost(request.host)) {
    return absl::PermissionDeniedError(
        StrCat("Host ", request.host, " is not this machine: use 127.0.0.1"));
  }
  FRESHET_RETURN_IF_ERROR(session.status());
  if (!api || options_.api_key.empty()) return absl::OkStatus();
  // Digests take the same time to compare wherever they differ.
  if (Sha256Hex(HeaderOf(request, "authorization")) == Sha256Hex("Bearer " + options_.api_key)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError("the API key is missing or wrong");
}

absl::Status ApiService::CheckModel(const std::string& name) const {
  if (name.empty() || name == options_.model_name || name == options_.model_path) {
    return absl::OkStatus();
  }
  return NotFound("the model \"", name, "\" does not exist; this server has ", options_.model_name);
}

ServedModel ApiService::Model() const {
  ServedModel model = options_.model;
  const int64_t most = queue_.stats().engine.max_tokens;
  if (most > 0) model.context = std::min(model.context, most);
  return model;
}

std::string ApiService::ModelJson() const {
  return nlohmann::ordered_json{
      {"id", options_.model_name},       {"object", "model"},           {"created", created_},
      {"owned_by", "freshet"},           {"root", options_.model_path}, {"parent", nullptr},
      {"max_model_len", Model().context}}
      .dump();
}

absl::StatusOr<HttpResponse> ApiService::Get(const std::string& path) const {
  if (path == "/health") return Health();
  if (path == kModels) {
    return JsonResponse(200, StrCat(R"({"object":"list","data":[)", ModelJson(), "]}"));
  }
  const std::string prefix = StrCat(kModels, "/");
  if (!absl::StartsWith(path, prefix)) return NotFound(path, ": no such path");
  FRESHET_RETURN_IF_ERROR(CheckModel(path.substr(prefix.size())));
  return JsonResponse(200, ModelJson());
}

HttpResponse ApiService::Health() const {
  const QueueStats queue = queue_.stats();
  const ApiStats api = stats();
  const char* state = "ok";
  if (!tokenizer_.ChatAvailable()) state = "chat templates hang";
  if (queue_.draining()) state = "draining";
  const nlohmann::ordered_json body = {
      {"status", state},
      {"unparsed", api.unparsed},
      {"unparsed_bytes", api.unparsed_bytes},
      {"waiting", queue.waiting},
      {"running", queue.running},
      {"refused", api.refused + queue.refused},
  };
  return JsonResponse(state == std::string_view("ok") ? 200 : 503, body.dump());
}

absl::Status ApiService::Reserve(int64_t bytes) {
  const MutexLock lock(mu_);
  if (stats_.unparsed >= options_.max_unparsed ||
      (stats_.unparsed > 0 && stats_.unparsed_bytes + bytes > options_.max_unparsed_bytes)) {
    ++stats_.refused;
    return ResourceExhausted("too many requests wait to be parsed: ", stats_.unparsed, " with ",
                             stats_.unparsed_bytes, " bytes; retry later");
  }
  ++stats_.unparsed;
  stats_.unparsed_bytes += bytes;
  return absl::OkStatus();
}

void ApiService::Release(int64_t bytes) {
  const MutexLock lock(mu_);
  --stats_.unparsed;
  stats_.unparsed_bytes -= bytes;
}

absl::Status ApiService::Post(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  // A page of another site cannot send this type without asking first.
  if (!absl::StartsWithIgnoreCase(HeaderOf(request, "content-type"), "application/json")) {
    return InvalidArgument("the header Content-Type is not application/json");
  }
  if (queue_.draining()) return absl::UnavailableError("the server is shutting down");
  const auto bytes = static_cast<int64_t>(request.body.size());
  FRESHET_RETURN_IF_ERROR(Reserve(bytes));
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  reply->OnClosed([gone] { *gone = true; });
  auto work = [this, reply, gone, bytes, request = std::move(request)] {
    AnswerExceptions(*reply, [&] {
      absl::StatusOr<CompletionPlan> plan;
      {
        // Before the answer: its client may look at the stats.
        const absl::Cleanup release([&] { Release(bytes); });
        if (*gone) return;
        plan = queue_.draining() ? absl::UnavailableError("the server is shutting down")
                                 : Plan(request);
      }
      if (!plan.ok()) return reply->Send(Failure(request.path, plan.status()));
      CompletionCall::Start(*std::move(plan), tokenizer_, queue_, writers_, reply);
    });
  };
  if (parsers_.TrySubmit(std::move(work))) return absl::OkStatus();
  Release(bytes);
  return absl::UnavailableError("the server is shutting down");
}

absl::StatusOr<ApiRequest> ApiService::Parse(const HttpRequest& request) const {
  if (request.path == kPooling) return ParsePoolingRequest(request.body);
  if (request.path == kChat) return ParseChatRequest(request.body, options_.defaults);
  return ParseCompletionRequest(request.body, options_.defaults);
}

absl::StatusOr<CompletionPlan> ApiService::Plan(const HttpRequest& request) const {
  FRESHET_ASSIGN_OR_RETURN(ApiRequest parsed, Parse(request));
  FRESHET_RETURN_IF_ERROR(CheckModel(parsed.model));
  CompletionPlan plan;
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, FindSession(request));
  if (session != nullptr) {
    FRESHET_RETURN_IF_ERROR(PlanSession(std::move(session), Sha256Hex(request.body), parsed, plan));
  } else {
    const ServedModel model = Model();
    FRESHET_ASSIGN_OR_RETURN(plan.prompts, EncodePrompts(parsed, model, tokenizer_, clock_.Now()));
    for (const std::vector<int32_t>& prompt : plan.prompts) {
      FRESHET_ASSIGN_OR_RETURN(
          SamplingParams sampling,
          PlanSampling(parsed, static_cast<int64_t>(prompt.size()), model, tokenizer_));
      plan.sampling.push_back(std::move(sampling));
    }
  }
  plan.seed = parsed.seed.value_or(NewRandom());
  const char* kind = parsed.pooling ? "pooling-" : parsed.chat ? "chatcmpl-" : "cmpl-";
  plan.head = {.id = StrCat(kind, Hex64(NewRandom()), Hex64(NewRandom())),
               .model = options_.model_name,
               .created = absl::ToUnixSeconds(clock_.Now())};
  plan.tool_format = options_.tool_format;
  plan.counts = options_.counts;
  plan.request = std::make_shared<ApiRequest>(std::move(parsed));
  return plan;
}

absl::StatusOr<std::shared_ptr<Session>> ApiService::FindSession(const HttpRequest& request) const {
  constexpr char kBearer[] = "Bearer ";
  const std::string key = HeaderOf(request, "authorization");
  if (options_.sessions == nullptr || !absl::StartsWith(key, kBearer)) return nullptr;
  return options_.sessions->Find(std::string_view(key).substr(sizeof(kBearer) - 1));
}

absl::Status ApiService::PlanSession(std::shared_ptr<Session> session, std::string digest,
                                     const ApiRequest& request, CompletionPlan& plan) const {
  if (request.n != 1) return ParameterError("n", "is not 1, as it must be in a session");
  if (!request.chat && request.prompts.size() != 1) {
    return ParameterError("prompt", "is a list of prompts; a request of a session has one");
  }
  if (request.chat && !request.conversation.add_generation_prompt) {
    return ParameterError("add_generation_prompt", "is false; a session's answers begin a message");
  }
  SessionRequest asked;
  asked.chat = request.chat;
  asked.conversation = request.conversation;
  asked.conversation.now = clock_.Now();
  if (!request.chat) {
    asked.text = request.prompts.front().text;
    asked.ids = request.prompts.front().ids;
  }
  asked.max_tokens = request.max_tokens;
  asked.stop_ids = request.stop_token_ids;
  asked.stop = request.stop;
  asked.top_logprobs = request.sampling.top_logprobs;
  asked.digest = std::move(digest);
  absl::Status encoded;
  absl::StatusOr<SessionTurn> turn =
      session->Begin(std::move(asked), [&]() -> absl::StatusOr<std::vector<int32_t>> {
        auto prompts = EncodePrompts(request, Model(), tokenizer_, clock_.Now());
        encoded = prompts.status();
        if (!encoded.ok()) return encoded;
        return std::move(prompts->front());
      });
  FRESHET_RETURN_IF_ERROR(encoded);
  if (absl::IsInvalidArgument(turn.status())) {
    return ParameterError(request.chat ? "messages" : "prompt", Message(turn.status()));
  }
  FRESHET_RETURN_IF_ERROR(turn.status());
  plan.prompts.push_back(std::move(turn->prompt_ids));
  plan.sampling.push_back(turn->generation.sampling);
  plan.repeated = std::move(turn->repeated);
  if (!plan.repeated.empty()) return absl::OkStatus();
  plan.generation = std::move(turn->generation);
  plan.session = std::move(session);
  plan.session_request = turn->request;
  return absl::OkStatus();
}

uint64_t ApiService::NewRandom() const { return RandomBits(entropy_, ++num_random_); }

}  // namespace freshet::openai
