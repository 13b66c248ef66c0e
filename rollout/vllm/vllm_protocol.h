#ifndef FRESHET_ROLLOUT_VLLM_VLLM_PROTOCOL_H_
#define FRESHET_ROLLOUT_VLLM_VLLM_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/policy_version.h"
#include "datastore/trajectory.h"
#include "rollout/engine/sampling.h"

// Bodies of vLLM's HTTP interface (0.32), as pure functions. Answers are untrusted: whatever is
// malformed is an INTERNAL error that says what was expected.

namespace freshet {

// One sample to generate.
struct GenerateCall {
  std::string request_id;
  std::string model;       // the served name; another server answers 404
  std::string cache_salt;  // prompts share cached prefixes only with others of the same salt
  std::vector<int32_t> token_ids;
  int64_t max_tokens = 1;
  uint64_t seed = 0;
  int32_t stream_interval = 1;  // tokens per piece of the answer
};

// Body of POST /inference/v1/generate. The answer is a stream of events.
std::string GenerateBody(const GenerateCall& call, const SamplingParams& sampling);
// The server's name of a generate request, by which it is aborted.
std::string WireId(const std::string& request_id);
// Body of POST /inference/v1/abort_requests.
std::string AbortBody(const std::vector<std::string>& wire_ids);
// Body of POST /collective_rpc.
std::string ReloadBody(const std::string& weights_path);
// Body of POST /update_weight_version.
std::string VersionBody(const PolicyVersion& policy);

// In spans: a label that VersionLabel does not make, such as that of a server which has restarted.
constexpr PolicyVersion kForeignVersion{-1, -1};

// "LINEAGE.VERSION", a policy in the server's spans.
std::string VersionLabel(const PolicyVersion& policy);
std::optional<PolicyVersion> ParseVersionLabel(std::string_view label);

// Splits a text/event-stream into the contents of its data lines.
class EventLines {
 public:
  // Appends the complete ones to `lines`. INTERNAL: a line is longer than `max_bytes`.
  absl::Status Add(std::string_view bytes, std::vector<std::string>& lines);

 private:
  static constexpr size_t kMaxBytes = 4 << 20;
  std::string rest_;
};

enum class PieceEnd { kNone, kStop, kLength, kAbort };

// The next tokens of a sample.
struct GeneratedPiece {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;     // one per id
  PieceEnd end = PieceEnd::kNone;  // set in the last piece, with the spans of the whole answer
  std::vector<Span> spans;
};
// One event of a generate stream. `done`: the stream is complete; without piece or `done` the event
// has no tokens. Returns errors of the event, as from HttpError.
struct GenerateEvent {
  bool done = false;
  std::optional<GeneratedPiece> piece;
};
absl::StatusOr<GenerateEvent> ParseGenerateEvent(const std::string& data);

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
  const std::vector<Span>& spans() const { return spans_; }  // set at the end

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

// The error of an answer whose status is not 200, to the call `what`.
//   INVALID_ARGUMENT: the server rejects this request.
//   FAILED_PRECONDITION: it lacks the route or the model, or denies access; repeating is useless.
//   UNAVAILABLE: it failed or is overloaded.
absl::Status HttpError(std::string_view what, int status, const std::string& body);

// What GET /v1/models says.
struct ServedModel {
  std::string name;
  int64_t max_model_len = 0;
};
absl::StatusOr<ServedModel> ParseServedModel(const std::string& body);
// The label in the answer of GET /weight_info.
absl::StatusOr<std::string> ParseWeightInfo(const std::string& body);
// Checks the answer of POST /collective_rpc: one null per worker.
absl::Status CheckReload(const std::string& body);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_VLLM_VLLM_PROTOCOL_H_
