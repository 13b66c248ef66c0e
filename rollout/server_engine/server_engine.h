#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ENGINE_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ENGINE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "model/model_config.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/server_engine/buffered_calls.h"
#include "rollout/server_engine/inference_server.h"
#include "rollout/server_engine/sample_call.h"
#include "rollout/server_engine/server_protocol.h"
#include "rollout/server_engine/weight_transfer.h"
#include "rollout/server_engine/weights_folder.h"
#include "services/runtime/http_calls.h"

namespace freshet {

struct ServerEngineOptions {
  int64_t max_sequences = 512;  // samples at the server
  std::string request_prefix;   // of request ids; unique among the server's clients
  InferenceServerOptions server;
  absl::Duration poll_wait = absl::Milliseconds(2);  // longest wait of Poll for tokens
  // How long answers may take to end after an abort. Once they have not, later aborts do not wait.
  absl::Duration abort_timeout = absl::Seconds(2);
  absl::Duration generate_timeout = absl::Hours(2);  // of one sample
  // The server is lost if none of its samples gets a token for this long.
  absl::Duration stall_timeout = absl::Seconds(120);
  absl::Duration retry_delay = absl::Milliseconds(100);  // of a failed call, doubled each time
  int most_tries = 3;                                    // of one sample
  int32_t stream_interval = 16;  // tokens per piece, unless the request has on_token
};

// Generates on an inference server, vLLM or SGLang by its protocol, one call per sample. Token ids
// in, token ids with log-probs and weight-version spans out; the spans are always the server's own.
//
// The server has one set of weights. A lane generates while its version is loaded. Evaluation goes
// first: samples of the rollout lane keep their tokens and wait while the evaluation lane has work
// and another version.
//
// New weights are written to the shared folder when they arrive, then loaded from there, or from
// this process by a WeightTransfer. Meanwhile the server's samples are frozen. Those with on_token,
// and all if answers have one version only (ServerTraits::swaps_under_load), are aborted before
// instead, and continued afterwards with their tokens in the prompt. If that fails, if the server
// does not answer or generates nothing for a while, or if it contradicts the protocol about
// versions, it is *lost*: Poll returns UNAVAILABLE once, the supervisor starts another server on
// the newest weights, and version(kRollout) is {-1, -1} until that is ready. Requests stay until
// they are cancelled or generated again; tokens that the lost server had not completed are gone.
//
// A failed call is repeated. After most_tries in a row, the request is given up
// (GenerationOutput::error) if its answer was malformed or the server has generated tokens since
// the first repetition; otherwise the server is lost. A request is given up at once if the server
// rejects it, or if tokens passed to on_token are lost. If the server lacks a route or the model,
// Poll returns INTERNAL.
//
// Tokens are not reproducible across batches. Poll waits up to poll_wait. LoadWeights and Cancel
// wait for the server. Not thread-safe.
class ServerEngine final : public InferenceEngine {
 public:
  // `protocol` and `clock` must outlive the engine. `transfer` is for vLLM only; null: running
  // servers read weights from the folder.
  ServerEngine(const ServerProtocol& protocol, const ModelConfig& config,
               std::unique_ptr<runtime::HttpCalls> calls, std::unique_ptr<WeightsFolder> folder,
               const Clock& clock, ServerEngineOptions options,
               std::unique_ptr<WeightTransfer> transfer = nullptr);

  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override;
  // Also INVALID_ARGUMENT: parameters that change the distribution, except top_p, top_k and min_p
  // in the evaluation lane. The log-probs of such samples are what the server has: those after
  // truncation of vLLM, those before it of SGLang.
  absl::Status Submit(GenerationRequest request) override;
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override;
  bool Idle() const override;
  std::vector<GenerationOutput> Cancel(int64_t request_id) override;
  void Pause(bool paused) override { paused_ = paused; }
  // Also INTERNAL: weights that are not finite; RESOURCE_EXHAUSTED: the shared folder is full.
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override;
  PolicyVersion version(Lane lane) const override;
  EngineStats stats() const override;

 private:
  struct Request;
  struct Sample {
    Request* request = nullptr;
    int32_t index = 0;
    Response kept;     // complete tokens, from partials and ended answers
    int64_t call = 0;  // 0: waits
    // Of the call:
    std::optional<SampleCall> answer;
    std::string request_id;
    int64_t tokens_before = 0;  // TokensGenerated() at the start of the first repetition
    bool aborting = false;

    int tries = 0;  // failed calls in a row that left no tokens
    absl::Time retry_at = absl::InfinitePast();
    bool done = false;
  };
  struct Request {
    GenerationRequest request;
    std::list<Sample> samples;
    absl::Status error;  // it is given up
  };

  bool LaneLoaded(Lane lane) const;
  bool HasWork(Lane lane) const;
  template <typename Visit>
  void ForEach(Visit visit);

  // Loads the weights of the lane whose turn it is, and starts waiting samples.
  void Schedule();
  void StartCall(Sample& sample);
  // False if there were none within `wait`.
  bool TakeEvents(absl::Duration wait);
  void TakeEvent(Sample& sample, const runtime::HttpCallEvent& event);
  // The server has ended the answer.
  void EndAnswer(Sample& sample);
  void CallFailed(Sample& sample, const absl::Status& why);
  // Counts a failed call and delays the next one. After too many, the request is given up or the
  // server is lost.
  void Retry(Sample& sample, const absl::Status& why);
  void GiveUp(Request& request, const absl::Status& why);
  int64_t TokensGenerated() const { return tokens_[0] + tokens_[1]; }
  void StopCall(Sample& sample);
  // Ends the answers of `samples` at the server and keeps their tokens.
  // Returns those whose answers were lost although tokens of them had been shown.
  std::vector<Sample*> Abort(std::vector<Sample*> samples);
  void SendAbort(const std::vector<std::string>& request_ids);
  void CheckProgress();
  void Lost(const absl::Status& why);
  void StartServer();
  // Removes samples that are done, and requests that are given up.
  void RemoveDone();

  const ServerProtocol& protocol_;
  const ModelConfig config_;
  const std::unique_ptr<runtime::HttpCalls> http_;
  const std::unique_ptr<WeightsFolder> folder_;
  const std::unique_ptr<WeightTransfer> transfer_;
  const Clock& clock_;
  const ServerEngineOptions options_;
  BufferedCalls calls_;
  InferenceServer server_;
  std::optional<StoredWeights> lanes_[kNumLanes];
  bool paused_ = false;
  std::list<Request> requests_;
  std::map<int64_t, Sample*> by_call_;
  std::vector<GenerationOutput> finished_;
  absl::Status error_;             // of the next Poll
  bool abort_unanswered_ = false;  // and no answer has gone on since
  absl::Time last_progress_ = absl::InfinitePast();
  absl::Time restart_at_ = absl::InfinitePast();
  int64_t last_request_ = 0;
  int64_t tokens_[kNumLanes] = {};
  int64_t tokens_prefilled_ = 0;
  int64_t weight_swaps_ = 0;
  int64_t server_restarts_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_SERVER_ENGINE_H_
