#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_ANSWER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "datastore/trajectory.h"

namespace freshet {

enum class PieceEnd { kNone, kStop, kLength, kAbort };

// The next tokens of a sample.
struct GeneratedPiece {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;     // one per id
  PieceEnd end = PieceEnd::kNone;  // set in the last piece
  // What the server says about versions since the last piece that said something, as tokens of the
  // whole answer. All are known at its end.
  std::vector<Span> spans;
};

// The tokens of one answer, checked as they come.
class SampleAnswer {
 public:
  SampleAnswer(int64_t vocab_size, int64_t max_tokens, std::vector<int32_t> stop_ids)
      : vocab_size_(vocab_size), max_tokens_(max_tokens), stop_ids_(std::move(stop_ids)) {}

  // INTERNAL: the piece has a token outside of the vocabulary or beyond max_tokens, a log-prob that
  // no token has, an end that does not match its tokens, or spans that do not cover the answer.
  absl::Status Add(GeneratedPiece piece);

  PieceEnd end() const { return end_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<float>& logprobs() const { return logprobs_; }
  const std::vector<Span>& spans() const { return spans_; }  // complete at the end
  bool IsStop(int32_t id) const;

 private:
  absl::Status CheckEnd() const;

  const int64_t vocab_size_;
  const int64_t max_tokens_;
  const std::vector<int32_t> stop_ids_;
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<Span> spans_;
  PieceEnd end_ = PieceEnd::kNone;
};

// Appends the first `count` tokens of an answer that has ended to `response`.
void AppendAnswer(const SampleAnswer& answer, size_t count, bool changes_distribution,
                  Response& response);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_ANSWER_H_
