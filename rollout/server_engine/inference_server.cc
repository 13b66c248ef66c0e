#include "rollout/server_engine/inference_server.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kTakeOverTimeout = absl::Seconds(5);

// Makes the call of a step and runs its concurrent work on another thread. Returns when both have
// ended. If one fails, the other is cancelled: the work by `stop`, the call by closing its
// connection. Returns the first error, followed by the other one if both have failed.
absl::Status RunWithWork(BufferedCalls& calls, ControlStep step) {
  absl::Status worked;  // written before `done`
  Notification done;
  std::jthread thread([&, timeout = step.call.timeout](const std::stop_token& stop) {
    worked = step.concurrent_work(timeout, stop);
    done.Notify();
  });
  const absl::StatusOr<std::string> body = calls.Await(
      std::move(step.call), [&] { return done.HasBeenNotified() ? worked : absl::OkStatus(); });
  absl::Status answered = body.status();
  if (body.ok() && step.check != nullptr) answered = step.check(*body);
  if (!answered.ok()) thread.request_stop();
  thread.join();
  if (answered.ok()) return worked;
  if (worked.ok() || absl::IsAborted(worked) || worked == answered) return answered;
  return StatusOf(answered.code(), Message(answered), "; ", Message(worked));
}

}  // namespace

absl::Status InferenceServer::Run(std::vector<ControlStep> steps) {
  for (ControlStep& step : steps) {
    step.call.timeout = step.loads_weights ? options_.load_timeout : options_.call_timeout;
    if (step.concurrent_work != nullptr) {
      FRESHET_RETURN_IF_ERROR(RunWithWork(calls_, std::move(step)));
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(const std::string body, calls_.Await(std::move(step.call)));
    if (step.check != nullptr) FRESHET_RETURN_IF_ERROR(step.check(body));
  }
  return absl::OkStatus();
}

void InferenceServer::SetReady(const PolicyVersion& policy) {
  state_ = State::kReady;
  loaded_ = policy;
  failed_probes_ = 0;
  next_probe_ = clock_.Now() + options_.probe_period;
}

void InferenceServer::SetLimit(const ServedModel& model) {
  max_tokens_ = std::max<int64_t>(model.max_model_len - protocol_.traits().reserved_tokens, 1);
}

bool InferenceServer::TakeOver(const StoredWeights& weights) {
  if (folder_.served().empty()) return false;
  runtime::HttpCall models = GetCall("/v1/models");
  models.timeout = kTakeOverTimeout;
  const absl::StatusOr<std::string> body = calls_.Await(std::move(models));
  if (!body.ok()) return false;
  const absl::StatusOr<ServedModel> model = ParseServedModel(*body);
  if (!model.ok()) return false;
  // SGLang names itself after the weights that it has loaded.
  if (model->name != folder_.served() && model->name != folder_.start_path()) return false;
  SetLimit(*model);
  state_ = State::kReady;
  const absl::Status loaded = Load(weights);
  FRESHET_LOG(Info) << "event=inference_server_taken_over server=" << folder_.served()
                    << " result=" << LogQuoted(loaded.ok() ? "ok" : Message(loaded));
  if (!loaded.ok()) state_ = State::kDown;
  return loaded.ok();
}

absl::Status InferenceServer::Start(const StoredWeights& weights) {
  state_ = State::kDown;
  loaded_ = {-1, -1};
  if (probe_ != 0) calls_.Stop(std::exchange(probe_, 0));
  if (transfer_ != nullptr) transfer_->Close();
  FRESHET_ASSIGN_OR_RETURN(const std::string name, folder_.Restart(weights.path));
  FRESHET_LOG(Info) << "event=inference_server_start server=" << name
                    << " version=" << weights.policy.version;
  state_ = State::kStarting;
  starting_ = weights;
  answers_ = false;
  last_error_ = "no answer";
  start_deadline_ = clock_.Now() + options_.start_timeout;
  next_probe_ = absl::InfinitePast();
  return absl::OkStatus();
}

absl::Status InferenceServer::Load(const StoredWeights& weights) {
  FRESHET_RETURN_IF_ERROR(
      transfer_ == nullptr || !transfer_->Usable()
          ? Run(protocol_.Load(weights, options_.recompute_kv))
          : transfer_->Load(weights, options_.recompute_kv, [this](std::vector<ControlStep> steps) {
              return Run(std::move(steps));
            }));
  SetReady(weights.policy);
  return folder_.StartWith(weights.path);
}

absl::Status InferenceServer::Advance() {
  if (state_ == State::kStarting && answers_) {
    FRESHET_RETURN_IF_ERROR(Run(protocol_.SetVersion(starting_.policy)));
    SetReady(starting_.policy);
    FRESHET_LOG(Info) << "event=inference_server_ready server=" << name()
                      << " max_tokens=" << max_tokens_;
  }
  if (state_ == State::kStarting && clock_.Now() >= start_deadline_) {
    return StatusOf(absl::StatusCode::kDeadlineExceeded, "inference server ", name(),
                    " has not started within ", absl::FormatDuration(options_.start_timeout), ": ",
                    last_error_, "; see its log");
  }
  if (state_ == State::kReady && failed_probes_ >= options_.failed_probes) {
    return StatusOf(absl::StatusCode::kUnavailable, "inference server ", name(),
                    " does not answer: ", last_error_);
  }
  if (state_ != State::kDown && probe_ == 0 && clock_.Now() >= next_probe_) Probe();
  return absl::OkStatus();
}

void InferenceServer::Probe() {
  probe_body_.clear();
  runtime::HttpCall probe = GetCall(state_ == State::kStarting ? "/v1/models" : "/health");
  probe.timeout = options_.probe_timeout;
  probe_ = calls_.Start(std::move(probe));
  // A starting server is asked more often, because nothing else is generated meanwhile.
  constexpr int kStartProbes = 10;
  next_probe_ = clock_.Now() + (state_ == State::kStarting ? options_.probe_period / kStartProbes
                                                           : options_.probe_period);
}

bool InferenceServer::TakeEvent(const runtime::HttpCallEvent& event) {
  if (event.call != probe_) return false;
  probe_body_ += event.data;
  if (!event.end) return true;
  probe_ = 0;
  absl::Status status = event.error;
  if (status.ok() && event.status != 200) status = HttpError("probe", event.status, probe_body_);
  ProbeEnded(status);
  return true;
}

void InferenceServer::ProbeEnded(const absl::Status& status) {
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
    SetLimit(*model);
    answers_ = true;
  }
}

}  // namespace freshet
