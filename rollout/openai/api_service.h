#ifndef FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_
#define FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "rollout/openai/completion_call.h"
#include "rollout/openai/generation_loop.h"
#include "rollout/openai/request_plan.h"
#include "services/runtime/executor.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

struct ApiServiceOptions {
  std::string model_name;  // what clients call the model
  std::string model_path;  // also accepted as its name
  ServedModel model;
  ToolCallFormat tool_format = ToolCallFormat::kNone;
  SamplingParams defaults;  // of requests that do not set them
  std::string api_key;      // callers must present it; "": any key or none
  // Refuse requests whose Host is not this machine: pages of other sites that a browser here shows
  // must not reach a server that asks for no key.
  bool local_hosts_only = true;
  int parser_threads = 2;  // parse and tokenize requests
  size_t max_unparsed = 1024;
};

// The routes of OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions; and /health.
// Thread-safe.
class ApiService {
 public:
  // The tokenizer, the loop and the clock must outlive the service.
  ApiService(ApiServiceOptions options, const Tokenizer& tokenizer, GenerationLoop& loop,
             const Clock& clock);

  // A runtime::HttpAsyncHandler.
  void Handle(runtime::HttpRequest request, std::shared_ptr<runtime::HttpReply> reply);
  // The error object for a request that the HTTP server refuses with this status.
  static runtime::HttpResponse Refusal(int status);

 private:
  absl::Status CheckCaller(const runtime::HttpRequest& request) const;
  absl::Status CheckModel(const std::string& name) const;
  // Answers requests that need no generation.
  absl::StatusOr<runtime::HttpResponse> Get(const std::string& path) const;
  // OK: the answer follows on `reply`.
  absl::Status Post(runtime::HttpRequest request, const std::shared_ptr<runtime::HttpReply>& reply);
  absl::StatusOr<CompletionPlan> Plan(const runtime::HttpRequest& request) const;
  std::string ModelJson() const;
  uint64_t NewRandom() const;

  const ApiServiceOptions options_;
  const Tokenizer& tokenizer_;
  GenerationLoop& loop_;
  const Clock& clock_;
  const int64_t created_;
  const uint64_t entropy_;
  mutable std::atomic<uint64_t> num_random_{0};
  runtime::Executor parsers_;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_API_SERVICE_H_
