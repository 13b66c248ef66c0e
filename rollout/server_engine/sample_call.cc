#include "rollout/server_engine/sample_call.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

SampleCall::SampleCall(const ServerProtocol& protocol, const GenerationRequest& request,
                       int32_t index, const Response& kept, int64_t vocab_size,
                       const PolicyVersion& loaded)
    : protocol_(protocol),
      request_(request),
      index_(index),
      max_tokens_(request.sampling.max_new_tokens - static_cast<int32_t>(kept.response_ids.size())),
      answer_(vocab_size, max_tokens_, request.sampling.stop_ids),
      versions_{loaded} {
  if (request.sampling.stop_strings == nullptr) return;
  matcher_ = request.sampling.stop_strings->MakeMatcher();
  for (const int32_t id : kept.response_ids) matcher_->Add(id);
}

absl::Status SampleCall::Take(const runtime::HttpCallEvent& event) {
  if (event.status == 200) {
    std::vector<std::string> lines;
    FRESHET_RETURN_IF_ERROR(lines_.Add(event.data, lines));
    for (const std::string& line : lines) {
      FRESHET_RETURN_IF_ERROR(TakeLine(line));
      if (ended()) return absl::OkStatus();  // the rest of the stream has nothing of interest
    }
  } else {
    error_body_ += event.data;
  }
  if (!event.end) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(event.error);
  if (event.status != 200) return HttpError("generate", event.status, error_body_);
  return StatusOf(absl::StatusCode::kUnavailable, "the server's answer stops before its end");
}

absl::Status SampleCall::TakeLine(const std::string& line) {
  FRESHET_ASSIGN_OR_RETURN(GenerateEvent event, protocol_.ParseEvent(line, answer_));
  if (!event.piece.has_value()) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(answer_.Add(*std::move(event.piece)));
  const size_t before = std::exchange(read_, answer_.ids().size());
  for (size_t i = before; i < read_ && !cut_.has_value(); ++i) {
    const bool stop = matcher_ != nullptr && matcher_->Add(answer_.ids()[i]);
    if (stop) cut_ = i + 1;
    if (request_.on_token != nullptr) Show(i, stop);
  }
  return absl::OkStatus();
}

void SampleCall::Show(size_t i, bool stop) {
  shown_ = true;
  GeneratedToken token;
  token.sample_index = index_;
  token.token.id = answer_.ids()[i];
  token.token.logprob = token.token.sampling_logprob = answer_.logprobs()[i];
  token.policy = versions_.back();
  const bool last = i + 1 == read_;
  if (stop || (last && answer_.end() == PieceEnd::kStop)) {
    token.finish = FinishReason::kStop;
  } else if (last && answer_.end() == PieceEnd::kLength) {
    token.finish = FinishReason::kLength;
  }
  request_.on_token(token);
}

absl::Status SampleCall::CheckVersions() const {
  for (const Span& span : answer_.spans()) {
    if (std::ranges::find(versions_, span.policy) != versions_.end()) continue;
    return Internal("generated with ",
                    span.policy == kForeignVersion ? "an unknown weight version"
                                                   : "weight version " + VersionLabel(span.policy),
                    ", which was not loaded during the call");
  }
  return absl::OkStatus();
}

void SampleCall::AppendTo(Response& response) const {
  AppendAnswer(answer_, tokens(), request_.sampling.ChangesDistribution(), response);
}

}  // namespace freshet
