#include "rollout/vllm/vllm_server.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/vllm/vllm_protocol.h"

namespace freshet {
namespace {

constexpr absl::Duration kTakeOverTimeout = absl::Seconds(5);

runtime::HttpCall Get(const std::string& target, absl::Duration timeout) {
  runtime::HttpCall call;
  call.method = "GET";
  call.target = target;
  call.timeout = timeout;
  return call;
}

}  // namespace

absl::StatusOr<std::string> VllmServer::Post(const std::string& target, std::string body) {
  runtime::HttpCall call;
  call.target = target;
  call.body = std::move(body);
  call.timeout = options_.call_timeout;
  return calls_.Await(std::move(call));
}

absl::Status VllmServer::SetVersion(const PolicyVersion& policy) {
  FRESHET_RETURN_IF_ERROR(Post("/update_weight_version", VersionBody(policy)).status());
  FRESHET_ASSIGN_OR_RETURN(const std::string info,
                           calls_.Await(Get("/weight_info", options_.call_timeout)));
  FRESHET_ASSIGN_OR_RETURN(const std::string label, ParseWeightInfo(info));
  if (label == VersionLabel(policy)) return absl::OkStatus();
  return Internal("vLLM's weight version is ", label.substr(0, 40), " after it was set to ",
                  VersionLabel(policy));
}

absl::Status VllmServer::Ready(const PolicyVersion& policy) {
  FRESHET_RETURN_IF_ERROR(SetVersion(policy));
  state_ = State::kReady;
  loaded_ = policy;
  failed_probes_ = 0;
  next_probe_ = clock_.Now() + options_.probe_period;
  return absl::OkStatus();
}

bool VllmServer::TakeOver(const StoredWeights& weights) {
  if (folder_.served().empty()) return false;
  const absl::StatusOr<std::string> body = calls_.Await(Get("/v1/models", kTakeOverTimeout));
  if (!body.ok()) return false;
  const absl::StatusOr<ServedModel> model = ParseServedModel(*body);
  if (!model.ok() || model->name != folder_.served()) return false;
  max_model_len_ = model->max_model_len;
  state_ = State::kReady;
  const absl::Status loaded = Load(weights);
  FRESHET_LOG(Info) << "event=vllm_taken_over server=" << folder_.served()
                    << " result=" << LogQuoted(loaded.ok() ? "ok" : Message(loaded));
  if (!loaded.ok()) state_ = State::kDown;
  return loaded.ok();
}

absl::Status VllmServer::Start(const StoredWeights& weights) {
  state_ = State::kDown;
  loaded_ = {-1, -1};
  if (probe_ != 0) calls_.Stop(std::exchange(probe_, 0));
  FRESHET_ASSIGN_OR_RETURN(const std::string name, folder_.Restart(weights.path));
  FRESHET_LOG(Info) << "event=vllm_start server=" << name << " version=" << weights.policy.version;
  state_ = State::kStarting;
  starting_ = weights;
  answers_ = false;
  last_error_ = "no answer";
  start_deadline_ = clock_.Now() + options_.start_timeout;
  next_probe_ = absl::InfinitePast();
  return absl::OkStatus();
}

absl::Status VllmServer::Load(const StoredWeights& weights) {
  FRESHET_RETURN_IF_ERROR(
      Post(StrCat("/pause?mode=keep&clear_cache=", options_.recompute_kv ? "true" : "false"))
          .status());
  runtime::HttpCall reload;
  reload.target = "/collective_rpc";
  reload.body = ReloadBody(weights.path);
  reload.timeout = options_.load_timeout;
  FRESHET_ASSIGN_OR_RETURN(const std::string results, calls_.Await(std::move(reload)));
  FRESHET_RETURN_IF_ERROR(CheckReload(results));
  if (!options_.recompute_kv) {
    // Without effect on prefixes that running samples use. New samples do not find these, because
    // the cache salt of their version differs.
    FRESHET_RETURN_IF_ERROR(
        Post("/reset_prefix_cache?reset_running_requests=false&reset_external=false").status());
  }
  FRESHET_RETURN_IF_ERROR(Ready(weights.policy));
  FRESHET_RETURN_IF_ERROR(Post("/resume").status());
  return folder_.StartWith(weights.path);
}

absl::Status VllmServer::Advance() {
  if (state_ == State::kStarting && answers_) {
    FRESHET_RETURN_IF_ERROR(Ready(starting_.policy));
    FRESHET_LOG(Info) << "event=vllm_ready server=" << name()
                      << " max_model_len=" << max_model_len_;
  }
  if (state_ == State::kStarting && clock_.Now() >= start_deadline_) {
    return StatusOf(absl::StatusCode::kDeadlineExceeded, "vLLM server ", name(),
                    " has not started within ", absl::FormatDuration(options_.start_timeout), ": ",
                    last_error_, "; see its log");
  }
  if (state_ == State::kReady && failed_probes_ >= options_.failed_probes) {
    return StatusOf(absl::StatusCode::kUnavailable, "vLLM server ", name(),
                    " does not answer: ", last_error_);
  }
  if (state_ != State::kDown && probe_ == 0 && clock_.Now() >= next_probe_) Probe();
  return absl::OkStatus();
}

void VllmServer::Probe() {
  probe_body_.clear();
  probe_ = calls_.Start(
      Get(state_ == State::kStarting ? "/v1/models" : "/health", options_.probe_timeout));
  // A starting server is asked more often, because nothing else is generated meanwhile.
  constexpr int kStartProbes = 10;
  next_probe_ = clock_.Now() + (state_ == State::kStarting ? options_.probe_period / kStartProbes
                                                           : options_.probe_period);
}

bool VllmServer::TakeEvent(const runtime::HttpCallEvent& event) {
  if (event.call != probe_) return false;
  probe_body_ += event.data;
  if (!event.end) return true;
  probe_ = 0;
  absl::Status status = event.error;
  if (status.ok() && event.status != 200) status = HttpError("probe", event.status, probe_body_);
  ProbeEnded(status);
  return true;
}

void VllmServer::ProbeEnded(const absl::Status& status) {
  if (!status.ok()) {
    ++failed_probes_;
    last_error_ = Message(status);
    return;
  }
  failed_probes_ = 0;
  if (state_ != State::kStarting) return;
  const absl::StatusOr<ServedModel> model = ParseServedModel(probe_body_);
  if (!model.ok()) {
    last_error_ = Message(model.status());
  } else if (model->name != name()) {
    last_error_ = StrCat("the server at the address serves ", model->name.substr(0, 80));
  } else {
    max_model_len_ = model->max_model_len;
    answers_ = true;
  }
}

}  // namespace freshet
