#include "rollout/openai/completion_call.h"

#include <numeric>
#include <utility>

#include "rollout/openai/api_error.h"

namespace freshet::openai {

void CompletionCall::Start(CompletionPlan plan, const Tokenizer& tokenizer, GenerationLoop& loop,
                           std::shared_ptr<runtime::HttpReply> reply) {
  const auto call =
      std::make_shared<CompletionCall>(std::move(plan), tokenizer, loop, std::move(reply));
  call->reply_->OnClosed([weak = std::weak_ptr<CompletionCall>(call)] {
    if (const auto gone = weak.lock()) gone->Abort(absl::CancelledError("the client is gone"));
  });
  call->Submit();
}

CompletionCall::CompletionCall(CompletionPlan plan, const Tokenizer& tokenizer,
                               GenerationLoop& loop, std::shared_ptr<runtime::HttpReply> reply)
    : plan_(std::move(plan)),
      loop_(loop),
      reply_(std::move(reply)),
      answer_(plan_.head, plan_.request, plan_.prompts, plan_.sampling.front().stop_ids, tokenizer,
              plan_.tool_format),
      running_(plan_.prompts.size()) {}

LoopRequest CompletionCall::MakeRequest(size_t prompt) {
  LoopRequest request;
  GenerationRequest& generation = request.generation;
  generation.prompt_ids = plan_.prompts[prompt];
  generation.sampling = plan_.sampling[prompt];
  generation.seed = plan_.seed;
  generation.ordinal = static_cast<int64_t>(prompt);
  generation.sample_indices.resize(static_cast<size_t>(plan_.request->n));
  std::iota(generation.sample_indices.begin(), generation.sample_indices.end(), 0);
  const std::shared_ptr<CompletionCall> self = shared_from_this();
  request.on_token = [self, prompt](const GeneratedToken& token) { self->OnToken(prompt, token); };
  request.on_end = [self](const absl::Status& status) { self->OnEnd(1, status); };
  return request;
}

void CompletionCall::Submit() {
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    absl::StatusOr<int64_t> id;
    bool failed = false;
    {
      // Abort waits for the id.
      const MutexLock lock(mu_);
      id = loop_.Submit(MakeRequest(prompt));
      if (id.ok()) ids_.push_back(*id);
      failed = !error_.ok();
    }
    if (!id.ok()) {
      Abort(id.status());
      return OnEnd(plan_.prompts.size() - prompt, id.status());
    }
    if (failed) loop_.Cancel(*id);
  }
}

void CompletionCall::OnToken(size_t prompt, const GeneratedToken& token) {
  std::string events = answer_.Add(prompt, token);
  if (events.empty()) return;
  if (!std::exchange(streaming_, true)) {
    return reply_->StartStream(
        {.content_type = "text/event-stream; charset=utf-8", .body = std::move(events)});
  }
  if (!reply_->Write(std::move(events))) Abort(absl::CancelledError("the client is gone"));
}

void CompletionCall::Abort(const absl::Status& reason) {
  std::vector<int64_t> ids;
  {
    const MutexLock lock(mu_);
    if (!error_.ok()) return;
    error_ = reason;
    ids = ids_;
  }
  for (const int64_t id : ids) loop_.Cancel(id);
}

void CompletionCall::OnEnd(size_t count, const absl::Status& status) {
  if (!status.ok()) Abort(status);
  absl::Status outcome;
  {
    const MutexLock lock(mu_);
    running_ -= count;
    if (running_ > 0) return;
    outcome = error_;
  }
  Complete(outcome);
}

void CompletionCall::Complete(const absl::Status& status) {
  if (!streaming_) {
    return reply_->Send({.status = status.ok() ? 200 : HttpStatusOf(status),
                         .content_type = "application/json",
                         .body = status.ok() ? answer_.Body() : ErrorBody(status)});
  }
  reply_->Write(status.ok() ? answer_.EndOfStream() : Answer::FailedStream(status));
  reply_->Finish();
}

}  // namespace freshet::openai
