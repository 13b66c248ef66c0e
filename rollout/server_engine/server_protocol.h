#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_PROTOCOL_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_PROTOCOL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/policy_version.h"
#include "model/model_config.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/sampling.h"
#include "rollout/server_engine/sample_answer.h"
#include "services/runtime/http_calls.h"

namespace freshet {

// How a kind of server differs from others.
struct ServerTraits {
  const char* engine = "";  // value of rollout.engine
  // Running samples stay at the server while weights are loaded, and the spans of their answers say
  // which version sampled which token. Otherwise samples must end before, because an answer has one
  // version.
  bool swaps_under_load = false;
  double min_temperature = 0;   // above 0; the server changes those below it
  int64_t reserved_tokens = 0;  // of max_model_len, for neither prompt nor response
  // An answer that has stop tokens also stops at the model's end tokens.
  bool stops_at_eos = false;
};

// INVALID_ARGUMENT: parameters that the server lacks, or with which its log-probs are not those
// that training needs.
absl::Status CheckSampling(const GenerationRequest& request, const ServerTraits& server,
                           const ModelConfig& model);

// One sample to generate.
struct GenerateCall {
  std::string request_id;
  std::string model;       // the served name
  std::string cache_salt;  // prompts share cached prefixes only with others of the same salt
  std::vector<int32_t> token_ids;
  int64_t max_tokens = 1;
  uint64_t seed = 0;
  int32_t stream_interval = 1;  // tokens per piece of the answer
};

// One event of a generate stream. `done`: the stream is complete; without piece or `done` the event
// has no tokens.
struct GenerateEvent {
  bool done = false;
  std::optional<GeneratedPiece> piece;
};

// A directory of weights of one version.
struct StoredWeights {
  PolicyVersion policy{-1, -1};
  std::string path;
};

// Work that the server expects while it answers a call. Returns at its timeout, which is that of
// the call, and with ABORTED soon after `stop`.
using ConcurrentWork =
    std::function<absl::Status(absl::Duration timeout, const std::stop_token& stop)>;

// A call that must succeed before the next one is made.
struct ControlStep {
  runtime::HttpCall call{};    // its timeout is the caller's
  bool loads_weights = false;  // may take long
  // Of the body of an answer of status 200. Null: there is nothing to check.
  std::function<absl::Status(const std::string&)> check = nullptr;
  ConcurrentWork concurrent_work = nullptr;  // null: none
};

// HTTP interface of a kind of inference server: what to send, and what its answers mean. Pure.
// Common to all kinds are GET /health, GET /v1/models and answers that are event streams.
// Thread-safe.
class ServerProtocol {
 public:
  virtual ~ServerProtocol() = default;
  virtual const ServerTraits& traits() const = 0;

  // The call that generates a sample; its limits are the caller's.
  virtual runtime::HttpCall Generate(const GenerateCall& call,
                                     const SamplingParams& sampling) const = 0;
  // `answer` has the pieces of earlier events. Returns errors of the event, as from HttpError.
  virtual absl::StatusOr<GenerateEvent> ParseEvent(const std::string& data,
                                                   const SampleAnswer& answer) const = 0;
  // Calls after which the answers to these requests end. `all`: the server has no others.
  virtual std::vector<runtime::HttpCall> Abort(const std::vector<std::string>& request_ids,
                                               bool all) const = 0;
  // Gives the weights that a server has started with their version.
  virtual std::vector<ControlStep> SetVersion(const PolicyVersion& policy) const = 0;
  // Replaces the weights. The server generates nothing from the first step to the last, before
  // which it has reported the new version.
  virtual std::vector<ControlStep> Load(const StoredWeights& weights, bool recompute_kv) const = 0;
};

// A POST of `body`.
inline runtime::HttpCall PostCall(std::string target, std::string body = "") {
  runtime::HttpCall call;
  call.target = std::move(target);
  call.body = std::move(body);
  return call;
}

inline runtime::HttpCall GetCall(std::string target) {
  runtime::HttpCall call;
  call.method = "GET";
  call.target = std::move(target);
  return call;
}

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_PROTOCOL_H_
