#include "rollout/openai/completion_call.h"

#include <numeric>
#include <utility>

#include "base/json_document.h"
#include "rollout/openai/chat_messages.h"
#include "rollout/openai/json_response.h"

namespace freshet::openai {
namespace {

constexpr char kEventStream[] = "text/event-stream; charset=utf-8";

}  // namespace

void CompletionCall::Start(CompletionPlan plan, const Tokenizer& tokenizer, GenerationQueue& queue,
                           runtime::Executor& writers, std::shared_ptr<runtime::HttpReply> reply) {
  const auto call = std::make_shared<CompletionCall>(std::move(plan), tokenizer, queue, writers,
                                                     std::move(reply));
  if (!call->plan_.repeated.empty()) return call->Repeat();
  call->reply_->OnClosed([weak = std::weak_ptr<CompletionCall>(call)] {
    if (const auto gone = weak.lock()) gone->Abort(absl::CancelledError("the client is gone"));
  });
  if (call->plan_.session != nullptr) {
    auto closed = [weak = std::weak_ptr<CompletionCall>(call)] {
      if (const auto ended = weak.lock()) ended->Abort(Session::Ended());
    };
    call->plan_.session->OnClosed(call->plan_.session_request, std::move(closed));
  }
  call->Submit();
}

CompletionCall::CompletionCall(CompletionPlan plan, const Tokenizer& tokenizer,
                               GenerationQueue& queue, runtime::Executor& writers,
                               std::shared_ptr<runtime::HttpReply> reply)
    : plan_(std::move(plan)),
      queue_(queue),
      writers_(writers),
      reply_(std::move(reply)),
      answer_(plan_.head, plan_.request, plan_.prompts, plan_.sampling.front().stop_ids, tokenizer,
              plan_.tool_format),
      running_(plan_.prompts.size()) {
  if (plan_.session == nullptr) return;
  auto whole = std::make_shared<ApiRequest>(*plan_.request);
  whole->stream = false;
  whole->logprobs = false;
  whole->return_token_ids = false;
  said_.emplace(plan_.head, std::move(whole), plan_.prompts, plan_.sampling.front().stop_ids,
                tokenizer, plan_.tool_format);
}

void CompletionCall::Repeat() {
  std::string events;
  for (GeneratedToken& token : plan_.repeated) {
    token.sample_index = 0;  // of the call
    events += answer_.Add(0, token);
  }
  if (!plan_.request->stream) return Complete(absl::OkStatus());
  if (plan_.counts != nullptr) plan_.counts->Count(absl::OkStatus());
  // In one piece: Write would cut off a client that has not yet read 1 MiB.
  reply_->StartStream({.content_type = kEventStream, .body = events + answer_.EndOfStream()});
  reply_->Finish();
}

QueuedRequest CompletionCall::MakeRequest(size_t prompt) {
  QueuedRequest request;
  GenerationRequest& generation = request.generation;
  const std::shared_ptr<CompletionCall> self = shared_from_this();
  request.on_token = [self, prompt](const GeneratedToken& token) { self->OnToken(prompt, token); };
  request.on_end = [self](const absl::Status& status) { self->OnEnd(1, status); };
  if (plan_.session != nullptr) {
    generation = std::move(plan_.generation);
    return request;
  }
  generation.prompt_ids = plan_.prompts[prompt];
  generation.sampling = plan_.sampling[prompt];
  generation.seed = plan_.seed;
  generation.ordinal = static_cast<int64_t>(prompt);
  generation.sample_indices.resize(static_cast<size_t>(plan_.request->n));
  std::iota(generation.sample_indices.begin(), generation.sample_indices.end(), 0);
  if (plan_.request->pooling) {
    generation.on_score = [self, prompt](float score) { self->answer_.AddScore(prompt, score); };
  }
  return request;
}

void CompletionCall::Submit() {
  std::vector<QueuedRequest> requests;
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    requests.push_back(MakeRequest(prompt));
  }
  absl::Status status;
  std::vector<int64_t> unwanted;
  {
    // Abort waits for the ids.
    const MutexLock lock(mu_);
    absl::StatusOr<std::vector<int64_t>> ids = queue_.SubmitAll(std::move(requests));
    status = ids.status();
    if (ids.ok()) ids_ = *std::move(ids);
    if (!error_.ok()) unwanted = ids_;
  }
  if (!status.ok()) return OnEnd(plan_.prompts.size(), status);
  for (const int64_t id : unwanted) queue_.Cancel(id);
}

void CompletionCall::OnToken(size_t prompt, const GeneratedToken& generated) {
  if (cut_) return;
  GeneratedToken token = generated;
  if (plan_.session != nullptr) {
    cut_ = !plan_.session->Add(plan_.session_request, token);
    if (cut_) token.finish = FinishReason::kLength;
    token.sample_index = 0;  // of the call
    said_->Add(prompt, token);
    if (cut_) CancelAll();
  }
  std::string events = answer_.Add(prompt, token);
  if (events.empty()) return;
  if (!std::exchange(streaming_, true)) {
    return reply_->StartStream({.content_type = kEventStream, .body = std::move(events)});
  }
  if (!reply_->Write(std::move(events))) Abort(absl::CancelledError("the client is gone"));
}

void CompletionCall::Abort(const absl::Status& reason) {
  {
    const MutexLock lock(mu_);
    if (!error_.ok()) return;
    error_ = reason;
  }
  CancelAll();
}

void CompletionCall::CancelAll() {
  std::vector<int64_t> ids;
  {
    const MutexLock lock(mu_);
    ids = ids_;
  }
  for (const int64_t id : ids) queue_.Cancel(id);
}

void CompletionCall::OnEnd(size_t count, const absl::Status& status) {
  if (!status.ok() && !(cut_ && absl::IsCancelled(status))) Abort(status);
  absl::Status outcome;
  {
    const MutexLock lock(mu_);
    running_ -= count;
    if (running_ > 0) return;
    outcome = error_;
  }
  Complete(outcome);
}

std::string CompletionCall::Said() const {
  const absl::StatusOr<Json> body = ParseOrderedJson(said_->Body(), "answer");
  if (!body.ok()) return "";
  const Json& choice = (*body)["choices"][0];
  if (!plan_.request->chat) return choice["text"].get<std::string>();
  const absl::StatusOr<Json> messages = TemplateMessages(Json::array({choice["message"]}));
  return messages.ok() ? messages->front().dump() : choice["message"].dump();
}

void CompletionCall::Complete(const absl::Status& status) {
  // Before the client knows: it may send the next request at once.
  if (plan_.session != nullptr) {
    plan_.session->End(plan_.session_request, status, status.ok() ? Said() : "");
  }
  if (plan_.counts != nullptr) plan_.counts->Count(status);
  if (streaming_) {
    reply_->Write(status.ok() ? answer_.EndOfStream() : Answer::FailedStream(status));
    return reply_->Finish();
  }
  if (!status.ok()) return reply_->Send(ErrorResponse(status));
  auto write = [self = shared_from_this()] {
    AnswerExceptions(*self->reply_,
                     [&self] { self->reply_->Send(JsonResponse(200, self->answer_.Body())); });
  };
  if (writers_.TrySubmit(std::move(write))) return;
  reply_->Send(ErrorResponse(absl::UnavailableError("too many answers are being written")));
}

}  // namespace freshet::openai
