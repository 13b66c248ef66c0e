#include "rollout/server_engine/sample_answer.h"

#include <algorithm>

#include "base/str_cat.h"

namespace freshet {
namespace {

// vLLM sends it for NaN and minus infinity. SGLang sends the lowest float for minus infinity.
constexpr float kNoLogprob = -9999.0F;
constexpr float kMostLogprob = 1e-3F;  // log-probs above 0 by rounding

}  // namespace

absl::Status SampleAnswer::Add(GeneratedPiece piece) {
  if (end_ != PieceEnd::kNone) return Internal("the server's answer goes on after its end");
  if (piece.ids.size() != piece.logprobs.size()) {
    return Internal("the server's answer: ", piece.ids.size(), " tokens and ",
                    piece.logprobs.size(), " log-probs");
  }
  if (static_cast<int64_t>(ids_.size() + piece.ids.size()) > max_tokens_) {
    return Internal("the server's answer has more than max_tokens ", max_tokens_, " tokens");
  }
  for (size_t i = 0; i < piece.ids.size(); ++i) {
    if (piece.ids[i] < 0 || piece.ids[i] >= vocab_size_) {
      return Internal("the server's answer: token ", piece.ids[i],
                      " is outside of the vocabulary of ", vocab_size_);
    }
    const float logprob = piece.logprobs[i];
    if (!(logprob > kNoLogprob && logprob < kMostLogprob)) {
      return Internal("the server's answer: log-prob ", logprob,
                      " of a sampled token; the weights or ",
                      "the server's cache may have values that are not finite");
    }
    ids_.push_back(piece.ids[i]);
    logprobs_.push_back(std::min(logprob, 0.0F));
  }
  for (const Span& span : piece.spans) {
    if (!spans_.empty() && spans_.back().policy == span.policy && spans_.back().end == span.begin) {
      spans_.back().end = span.end;
    } else {
      spans_.push_back(span);
    }
  }
  end_ = piece.end;
  if (end_ == PieceEnd::kNone) return absl::OkStatus();
  return CheckEnd();
}

bool SampleAnswer::IsStop(int32_t id) const {
  return std::ranges::find(stop_ids_, id) != stop_ids_.end();
}

absl::Status SampleAnswer::CheckEnd() const {
  const auto size = static_cast<int64_t>(ids_.size());
  if (end_ == PieceEnd::kLength && size != max_tokens_) {
    return Internal("the server ended an answer of ", size, " tokens by its length, max_tokens is ",
                    max_tokens_, "; is its context length too small?");
  }
  if (end_ == PieceEnd::kStop && (ids_.empty() || !IsStop(ids_.back()))) {
    return Internal("the server stopped an answer at a token that is no stop token");
  }
  int64_t covered = 0;
  for (const Span& span : spans_) {
    if (span.begin != covered || span.end <= span.begin) {
      return Internal("the server's weight versions have a gap or an overlap at token ", covered);
    }
    covered = span.end;
  }
  if (covered != size) {
    return Internal("the server's weight versions cover ", covered, " of ", size, " tokens");
  }
  return absl::OkStatus();
}

void AppendAnswer(const SampleAnswer& answer, size_t count, bool changes_distribution,
                  Response& response) {
  const size_t before = response.response_ids.size();
  const bool both = changes_distribution || !response.sampling_logprobs.empty();
  if (both && response.sampling_logprobs.empty()) {
    response.sampling_logprobs = response.behavior_logprobs;
  }
  const auto offset = static_cast<int32_t>(before);
  const auto end = static_cast<int32_t>(count);
  const auto prefix = static_cast<std::ptrdiff_t>(count);
  response.response_ids.insert(response.response_ids.end(), answer.ids().begin(),
                               answer.ids().begin() + prefix);
  response.behavior_logprobs.insert(response.behavior_logprobs.end(), answer.logprobs().begin(),
                                    answer.logprobs().begin() + prefix);
  if (both) {
    response.sampling_logprobs.insert(response.sampling_logprobs.end(), answer.logprobs().begin(),
                                      answer.logprobs().begin() + prefix);
  }
  response.loss_mask.resize(before + count, 1);
  for (const Span& span : answer.spans()) {
    if (span.begin >= end) break;
    const int32_t last = std::min(span.end, end) + offset;
    if (!response.spans.empty() && response.spans.back().policy == span.policy) {
      response.spans.back().end = last;
    } else {
      response.spans.push_back({span.policy, span.begin + offset, last});
    }
  }
}

}  // namespace freshet
