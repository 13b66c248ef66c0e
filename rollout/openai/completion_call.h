#ifndef FRESHET_ROLLOUT_OPENAI_COMPLETION_CALL_H_
#define FRESHET_ROLLOUT_OPENAI_COMPLETION_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/openai/answer.h"
#include "rollout/openai/request_counts.h"
#include "rollout/sessions/session.h"
#include "services/runtime/executor.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

// What a call generates, or scores.
struct CompletionPlan {
  AnswerHead head;
  std::shared_ptr<const ApiRequest> request;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<SamplingParams> sampling;  // by prompt
  uint64_t seed = 0;
  ToolCallFormat tool_format = ToolCallFormat::kNone;
  // Records the call, which has one prompt and n = 1. Null: not recorded.
  std::shared_ptr<Session> session = nullptr;
  int64_t session_request = 0;        // the call's number there
  GenerationRequest generation = {};  // of the session
  // The answer to its only prompt, if it is known. Then it has no session.
  std::vector<GeneratedToken> repeated = {};
  std::shared_ptr<RequestCounts> counts = nullptr;  // gets how the call ends; may be null
};

// One call of the API from its plan to the end of its answer. It lives as long as the queue works
// for it. A call whose client goes away or whose session ends is cancelled. Thread-safe.
class CompletionCall : public std::enable_shared_from_this<CompletionCall> {
 public:
  // Starts generating and answers on `reply`, now or later. Whole answers are written on `writers`,
  // because a large one would delay the other calls of the queue. The tokenizer, the queue and the
  // writers must outlive the answer.
  static void Start(CompletionPlan plan, const Tokenizer& tokenizer, GenerationQueue& queue,
                    runtime::Executor& writers, std::shared_ptr<runtime::HttpReply> reply);

  // Use Start.
  CompletionCall(CompletionPlan plan, const Tokenizer& tokenizer, GenerationQueue& queue,
                 runtime::Executor& writers, std::shared_ptr<runtime::HttpReply> reply);

 private:
  // Answers with what is known.
  void Repeat();
  void Submit();
  QueuedRequest MakeRequest(size_t prompt);
  void OnToken(size_t prompt, const GeneratedToken& generated);
  // Prompts of the call have ended: `count`, all with this status.
  void OnEnd(size_t count, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels what still runs; `reason` is the call's error if it has none.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels the requests in the queue; the call ends without an error if it has none.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mu_);
  void Complete(const absl::Status& status);
  // The whole answer as its session keeps it.
  std::string Said() const;

  CompletionPlan plan_;
  GenerationQueue& queue_;
  runtime::Executor& writers_;
  const std::shared_ptr<runtime::HttpReply> reply_;
  // Used on the engine's thread until the last prompt has ended, or by Repeat; then by a writer.
  Answer answer_;
  std::optional<Answer> said_;  // the whole answer, for the session
  bool streaming_ = false;
  // The session needs no further token, so that cancelled requests are no error. Used on the
  // engine's thread, or by Submit if that fails.
  bool cut_ = false;

  Mutex mu_;
  size_t running_ ABSL_GUARDED_BY(mu_);            // prompts that have not ended
  absl::Status error_ ABSL_GUARDED_BY(mu_);        // the first one
  std::vector<int64_t> ids_ ABSL_GUARDED_BY(mu_);  // of the requests in the queue
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_COMPLETION_CALL_H_
