#include "rollout/openai/api_service.h"

#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "base/digest.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/openai/api_error.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::openai {
namespace {

using runtime::HttpReply;
using runtime::HttpRequest;
using runtime::HttpResponse;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kModels[] = "/v1/models";

HttpResponse JsonResponse(int status, std::string body) {
  return {.status = status, .content_type = "application/json", .body = std::move(body)};
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response = JsonResponse(HttpStatusOf(status), ErrorBody(status));
  if (response.status == 429) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string HeaderOf(const HttpRequest& request, const std::string& name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

uint64_t Entropy() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

ApiService::ApiService(ApiServiceOptions options, const Tokenizer& tokenizer, GenerationLoop& loop,
                       const Clock& clock)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      loop_(loop),
      clock_(clock),
      created_(absl::ToUnixSeconds(clock.Now())),
      entropy_(Entropy()),
      parsers_(options_.parser_threads, options_.max_unparsed) {}

HttpResponse ApiService::Refusal(int status) {
  const nlohmann::ordered_json error = {
      {"message", StrCat("the request is refused with HTTP status ", status)},
      {"type", status < 500 ? "BadRequestError" : "InternalServerError"},
      {"param", nullptr},
      {"code", status}};
  return JsonResponse(status, nlohmann::ordered_json{{"error", error}}.dump());
}

void ApiService::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const bool post = request.path == kCompletions || request.path == kChat;
  const bool posted = request.method == "POST";
  absl::Status status = CheckCaller(request);
  if (status.ok() && post != posted) {
    status = post || request.path == "/health" || absl::StartsWith(request.path, kModels)
                 ? absl::UnimplementedError(StrCat(request.path, " wants ", post ? "POST" : "GET",
                                                   ", not ", request.method))
                 : NotFound(request.path, ": no such path");
  }
  if (status.ok() && post) {
    status = Post(std::move(request), reply);
  } else if (status.ok()) {
    absl::StatusOr<HttpResponse> response = Get(request.path);
    if (response.ok()) return reply->Send(*std::move(response));
    status = response.status();
  }
  if (!status.ok()) reply->Send(ErrorResponse(status));
}

absl::Status ApiService::CheckCaller(const HttpRequest& request) const {
  if (options_.local_hosts_only && !request.host.empty() && !runtime::IsLoopback(request.host) &&
      !runtime::IsLoopback(request.host + ":80")) {
    return absl::PermissionDeniedError(
        StrCat("Host ", request.host, " is not this machine: use 127.0.0.1"));
  }
  if (options_.api_key.empty() || !absl::StartsWith(request.path, "/v1")) return absl::OkStatus();
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

std::string ApiService::ModelJson() const {
  return nlohmann::ordered_json{{"id", options_.model_name},
                                {"object", "model"},
                                {"created", created_},
                                {"owned_by", "freshet"},
                                {"root", options_.model_path},
                                {"parent", nullptr},
                                {"max_model_len", options_.model.context}}
      .dump();
}

absl::StatusOr<HttpResponse> ApiService::Get(const std::string& path) const {
  if (path == "/health") return HttpResponse{.status = loop_.draining() ? 503 : 200};
  if (path == kModels) {
    return JsonResponse(200, StrCat(R"({"object":"list","data":[)", ModelJson(), "]}"));
  }
  const std::string prefix = StrCat(kModels, "/");
  if (!absl::StartsWith(path, prefix)) return NotFound(path, ": no such path");
  FRESHET_RETURN_IF_ERROR(CheckModel(path.substr(prefix.size())));
  return JsonResponse(200, ModelJson());
}

absl::Status ApiService::Post(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  // A page of another site cannot send this type without asking first.
  if (!absl::StartsWithIgnoreCase(HeaderOf(request, "content-type"), "application/json")) {
    return InvalidArgument("the header Content-Type is not application/json");
  }
  if (loop_.draining()) return absl::UnavailableError("the server is shutting down");
  auto work = [this, reply, request = std::move(request)] {
    absl::StatusOr<CompletionPlan> plan = Plan(request);
    if (!plan.ok()) return reply->Send(ErrorResponse(plan.status()));
    CompletionCall::Start(*std::move(plan), tokenizer_, loop_, reply);
  };
  if (parsers_.TrySubmit(std::move(work))) return absl::OkStatus();
  return ResourceExhausted("too many requests wait; retry later");
}

absl::StatusOr<CompletionPlan> ApiService::Plan(const HttpRequest& request) const {
  const bool chat = request.path == kChat;
  FRESHET_ASSIGN_OR_RETURN(ApiRequest parsed,
                           chat ? ParseChatRequest(request.body, options_.defaults)
                                : ParseCompletionRequest(request.body, options_.defaults));
  FRESHET_RETURN_IF_ERROR(CheckModel(parsed.model));
  CompletionPlan plan;
  FRESHET_ASSIGN_OR_RETURN(plan.prompts,
                           EncodePrompts(parsed, options_.model, tokenizer_, clock_.Now()));
  for (const std::vector<int32_t>& prompt : plan.prompts) {
    FRESHET_ASSIGN_OR_RETURN(
        SamplingParams sampling,
        PlanSampling(parsed, static_cast<int64_t>(prompt.size()), options_.model, tokenizer_));
    plan.sampling.push_back(std::move(sampling));
  }
  plan.seed = parsed.seed.value_or(NewRandom());
  plan.head = {.id = StrCat(chat ? "chatcmpl-" : "cmpl-", Hex64(NewRandom()), Hex64(NewRandom())),
               .model = options_.model_name,
               .created = absl::ToUnixSeconds(clock_.Now())};
  plan.tool_format = options_.tool_format;
  plan.request = std::make_shared<ApiRequest>(std::move(parsed));
  return plan;
}

uint64_t ApiService::NewRandom() const { return RandomBits(entropy_, ++num_random_); }

}  // namespace freshet::openai
