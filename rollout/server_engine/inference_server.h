#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_INFERENCE_SERVER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_INFERENCE_SERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/policy_version.h"
#include "rollout/server_engine/buffered_calls.h"
#include "rollout/server_engine/server_answer.h"
#include "rollout/server_engine/server_protocol.h"
#include "rollout/server_engine/weight_transfer.h"
#include "rollout/server_engine/weights_folder.h"

namespace freshet {

struct InferenceServerOptions {
  // On new weights, running samples compute their keys and values again (kv: recompute).
  bool recompute_kv = false;
  absl::Duration start_timeout = absl::Minutes(20);
  absl::Duration load_timeout = absl::Minutes(10);
  absl::Duration call_timeout = absl::Seconds(30);  // of other calls
  absl::Duration probe_period = absl::Seconds(5);
  absl::Duration probe_timeout = absl::Seconds(10);
  int failed_probes = 2;  // in a row, after which the server is lost
};

// One inference server and the version of its weights. After an error of any method the server is
// in an unknown state and must be restarted. Confined to one thread.
class InferenceServer {
 public:
  enum class State { kDown, kStarting, kReady };

  // `protocol`, `calls`, `folder`, `transfer` and `clock` must outlive it. `transfer` loads weights
  // into the running server; null or not Usable: the server reads them from the folder.
  InferenceServer(const ServerProtocol& protocol, BufferedCalls& calls, WeightsFolder& folder,
                  WeightTransfer* transfer, const Clock& clock,
                  const InferenceServerOptions& options)
      : protocol_(protocol),
        calls_(calls),
        folder_(folder),
        transfer_(transfer),
        clock_(clock),
        options_(options) {}

  // Loads `weights` into a running server of this model, as a former process left it. Returns false
  // if there is none.
  bool TakeOver(const StoredWeights& weights);
  // Has the supervisor start a new server on `weights`, which takes until State::kReady.
  absl::Status Start(const StoredWeights& weights);
  // Swaps the weights of a ready server. Without ServerTraits::swaps_under_load, its samples must
  // have ended. Blocks.
  absl::Status Load(const StoredWeights& weights);

  // Probes the server when it is due. UNAVAILABLE: it does not answer; DEADLINE_EXCEEDED: it has
  // not started in time.
  absl::Status Advance();
  // Whether the event is of a probe. Call Advance afterwards.
  bool TakeEvent(const runtime::HttpCallEvent& event);

  State state() const { return state_; }
  // The server's weights. {-1, -1} unless ready.
  const PolicyVersion& loaded() const { return loaded_; }
  const std::string& name() const { return folder_.served(); }
  // The server's limit of prompt and response, 0 if unknown.
  int64_t max_tokens() const { return max_tokens_; }

 private:
  absl::Status Run(std::vector<ControlStep> steps);
  void Probe();
  void SetLimit(const ServedModel& model);
  void ProbeEnded(const absl::Status& status);
  void SetReady(const PolicyVersion& policy);

  const ServerProtocol& protocol_;
  BufferedCalls& calls_;
  WeightsFolder& folder_;
  WeightTransfer* const transfer_;
  const Clock& clock_;
  const InferenceServerOptions options_;
  State state_ = State::kDown;
  StoredWeights starting_;  // what it starts with
  PolicyVersion loaded_{-1, -1};
  int64_t max_tokens_ = 0;
  absl::Time start_deadline_;
  absl::Time next_probe_ = absl::InfinitePast();
  int64_t probe_ = 0;  // 0: none
  std::string probe_body_;
  int failed_probes_ = 0;
  bool answers_ = false;  // a starting server serves the model
  std::string last_error_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_INFERENCE_SERVER_H_
