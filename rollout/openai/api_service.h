#ifndef FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_
#define FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/openai/completion_call.h"
#include "rollout/openai/request_counts.h"
#include "rollout/openai/request_plan.h"
#include "rollout/sessions/session_registry.h"
#include "services/runtime/executor.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

struct ApiServiceOptions {
  std::string model_name;  // what clients call the model
  std::string model_path;  // also accepted as its name
  ServedModel model;       // the limit of the engine's server reduces its context
  ToolCallFormat tool_format = ToolCallFormat::kNone;
  SessionRegistry* sessions = nullptr;    // whose keys are API keys, too; null: none
  std::shared_ptr<RequestCounts> counts;  // gets how completions end; may be null
  SamplingParams defaults;                // of requests that do not set them
  std::string api_key;                    // callers must present it; "": any key or none
  // Refuse requests whose Host is not this machine: pages of other sites that a browser here shows
  // must not reach a server that asks for no key.
  bool local_hosts_only = true;
  // Parse and tokenize requests. At either bound, of requests and of bytes in their bodies, further
  // ones are refused.
  int parser_threads = 2;
  int64_t max_unparsed = 1024;
  int64_t max_unparsed_bytes = 64 << 20;
  // Write whole answers.
  int writer_threads = 1;
  size_t max_unwritten = 1024;
};

struct ApiStats {
  int64_t unparsed = 0;  // requests, with those being parsed
  int64_t unparsed_bytes = 0;
  int64_t refused = 0;  // because of too many of them, since the start
};

// The routes of OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions; vLLM's
// /pooling, for a model with a scalar head in place of the latter two; and /health. Thread-safe.
class ApiService {
 public:
  // The tokenizer, the queue and the clock must outlive the service, whose own calls must have
  // ended when it is destroyed: close the queue before.
  ApiService(ApiServiceOptions options, const Tokenizer& tokenizer, GenerationQueue& queue,
             const Clock& clock);

  // A runtime::HttpAsyncHandler.
  void Handle(runtime::HttpRequest request, std::shared_ptr<runtime::HttpReply> reply);
  // HttpLimits::check_head: callers without access, and requests for no path or method that exists,
  // are answered before the body is received.
  std::optional<runtime::HttpResponse> CheckHead(const runtime::HttpRequest& head) const;
  // The error object for a request that the HTTP server refuses.
  static runtime::HttpResponse Refusal(int status, const std::string& message);

  ApiStats stats() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status CheckCaller(const runtime::HttpRequest& request) const;
  // CheckCaller, and whether the path takes the method and serves this model.
  absl::Status CheckRoute(const runtime::HttpRequest& head) const;
  absl::Status CheckHeadOfModel(const std::string& path) const;
  // The answer to a request that fails with `status`, which is counted for a completion.
  runtime::HttpResponse Failure(const std::string& path, const absl::Status& status) const;
  absl::Status CheckModel(const std::string& name) const;
  // Answers requests that need no generation.
  absl::StatusOr<runtime::HttpResponse> Get(const std::string& path) const;
  runtime::HttpResponse Health() const;
  // OK: the answer follows on `reply`.
  absl::Status Post(runtime::HttpRequest request, const std::shared_ptr<runtime::HttpReply>& reply);
  // The first adds a request to the unparsed ones, the second removes it.
  absl::Status Reserve(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<ApiRequest> Parse(const runtime::HttpRequest& request) const;
  absl::StatusOr<CompletionPlan> Plan(const runtime::HttpRequest& request) const;
  // The session whose key the request has; null: none.
  absl::StatusOr<std::shared_ptr<Session>> FindSession(const runtime::HttpRequest& request) const;
  // `digest` is that of the request's body.
  absl::Status PlanSession(std::shared_ptr<Session> session, std::string digest,
                           const ApiRequest& request, CompletionPlan& plan) const;
  ServedModel Model() const;
  std::string ModelJson() const;
  uint64_t NewRandom() const;

  const ApiServiceOptions options_;
  const Tokenizer& tokenizer_;
  GenerationQueue& queue_;
  const Clock& clock_;
  const int64_t created_;
  const uint64_t entropy_;
  mutable std::atomic<uint64_t> num_random_{0};
  mutable Mutex mu_;
  ApiStats stats_ ABSL_GUARDED_BY(mu_);
  runtime::Executor writers_;
  runtime::Executor parsers_;  // uses the members above
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_
