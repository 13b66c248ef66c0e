#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_CALL_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/policy_version.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/server_engine/sample_answer.h"
#include "rollout/server_engine/server_answer.h"
#include "rollout/server_engine/server_protocol.h"
#include "services/runtime/http_calls.h"

namespace freshet {

// The answer to one call that generates tokens of a sample, read from the events of the call. Calls
// GenerationRequest::on_token for each token, and looks for stop strings. Confined to one thread.
class SampleCall {
 public:
  // `kept`: the sample's tokens of earlier calls. `loaded`: the server's weights. The protocol and
  // the request must outlive it.
  SampleCall(const ServerProtocol& protocol, const GenerationRequest& request, int32_t index,
             const Response& kept, int64_t vocab_size, const PolicyVersion& loaded);

  int32_t max_tokens() const { return max_tokens_; }
  // The server has loaded other weights while it answers.
  void WeightsLoaded(const PolicyVersion& policy) { versions_.push_back(policy); }

  // Errors: why the call has failed, as from HttpError; UNAVAILABLE also: the answer breaks off;
  // INTERNAL: it is malformed. Nothing follows after an error, or after ended().
  absl::Status Take(const runtime::HttpCallEvent& event);

  size_t read() const { return read_; }                   // tokens so far
  size_t tokens() const { return cut_.value_or(read_); }  // up to the stop string
  bool shown() const { return shown_; }                   // on_token has been called
  bool cut() const { return cut_.has_value(); }           // it has a stop string
  bool ended() const { return answer_.end() != PieceEnd::kNone; }
  // The sample ends here, by a stop string or stop token.
  bool stopped() const { return cut() || answer_.end() == PieceEnd::kStop; }

  // The following need ended().

  // INTERNAL: it has a version that was not loaded during the call.
  absl::Status CheckVersions() const;
  // Appends tokens() to `response`.
  void AppendTo(Response& response) const;

 private:
  absl::Status TakeLine(const std::string& line);
  void Show(size_t i, bool stop);

  const ServerProtocol& protocol_;
  const GenerationRequest& request_;
  const int32_t index_;
  const int32_t max_tokens_;
  SampleAnswer answer_;
  EventLines lines_;
  std::string error_body_;
  std::vector<PolicyVersion> versions_;  // that the server had during the call
  std::unique_ptr<StopMatcher> matcher_;
  std::optional<size_t> cut_;  // tokens up to a stop string
  size_t read_ = 0;
  bool shown_ = false;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SAMPLE_CALL_H_
