#include "rollout/server_engine/server_engine.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "rollout/engine/request_check.h"

namespace freshet {
namespace {

constexpr size_t kBytesPerToken = 1024;  // of a stream, generously

}  // namespace

ServerEngine::ServerEngine(const ServerProtocol& protocol, const ModelConfig& config,
                           std::unique_ptr<runtime::HttpCalls> calls,
                           std::unique_ptr<WeightsFolder> folder, const Clock& clock,
                           ServerEngineOptions options, std::unique_ptr<WeightTransfer> transfer)
    : protocol_(protocol),
      config_(config),
      http_(std::move(calls)),
      folder_(std::move(folder)),
      transfer_(std::move(transfer)),
      clock_(clock),
      options_(std::move(options)),
      calls_(*http_),
      server_(protocol, calls_, *folder_, transfer_.get(), clock, options_.server) {}

template <typename Visit>
void ServerEngine::ForEach(Visit visit) {
  for (Request& request : requests_) {
    for (Sample& sample : request.samples) visit(sample);
  }
}

int64_t ServerEngine::Admissible(int64_t, int64_t num_samples, const SamplingParams&,
                                 int64_t most) const {
  const int64_t running = stats().running_sequences;
  int64_t fitting = (options_.max_sequences - running) / num_samples;
  // A request larger than the whole engine may run alone.
  if (running == 0) fitting = std::max<int64_t>(fitting, 1);
  return std::clamp<int64_t>(fitting, 0, most);
}

absl::Status ServerEngine::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(CheckRequest(request, config_));
  FRESHET_RETURN_IF_ERROR(CheckSampling(request, protocol_.traits(), config_));
  const auto length =
      static_cast<int64_t>(request.prompt_ids.size()) + request.sampling.max_new_tokens;
  if (server_.max_tokens() > 0 && length > server_.max_tokens()) {
    return InvalidArgument("request ", request.id, ": ", length,
                           " tokens of prompt and response exceed the server's limit of ",
                           server_.max_tokens());
  }
  const auto lane = static_cast<size_t>(request.lane);
  if (!lanes_[lane].has_value()) return FailedPrecondition("the engine has no weights yet");
  const auto num_samples = static_cast<int64_t>(request.sample_indices.size());
  if (Admissible(0, num_samples, request.sampling, 1) == 0) {
    return ResourceExhausted("no room for ", num_samples, " samples: ", stats().running_sequences,
                             " of ", options_.max_sequences, " run");
  }
  Request& added = requests_.emplace_back();
  added.request = std::move(request);
  GenerationRequest& kept = added.request;
  for (size_t i = 0; i < kept.sample_indices.size(); ++i) {
    Sample& sample = added.samples.emplace_back();
    sample.request = &added;
    sample.index = kept.sample_indices[i];
    if (!kept.partials.empty()) sample.kept = std::move(kept.partials[i]);
  }
  kept.partials.clear();
  return absl::OkStatus();
}

bool ServerEngine::LaneLoaded(Lane lane) const {
  const std::optional<StoredWeights>& weights = lanes_[static_cast<size_t>(lane)];
  return weights.has_value() && server_.state() == InferenceServer::State::kReady &&
         weights->policy == server_.loaded();
}

bool ServerEngine::HasWork(Lane lane) const {
  if (paused_ && lane == Lane::kRollout) return false;
  return std::ranges::any_of(
      requests_, [lane](const Request& request) { return request.request.lane == lane; });
}

bool ServerEngine::Idle() const {
  const bool starting = server_.state() != InferenceServer::State::kReady &&
                        (lanes_[0].has_value() || lanes_[1].has_value());
  return error_.ok() && finished_.empty() && !starting && !HasWork(Lane::kRollout) &&
         !HasWork(Lane::kEvaluation);
}

absl::StatusOr<std::vector<GenerationOutput>> ServerEngine::Poll() {
  if (error_.ok() && finished_.empty()) {
    const absl::Status alive = server_.Advance();
    if (!alive.ok()) Lost(alive);
  }
  if (error_.ok() && finished_.empty()) {
    StartServer();
    Schedule();
    TakeEvents(options_.poll_wait);
    RemoveDone();
    CheckProgress();
  }
  if (finished_.empty() && !error_.ok()) return std::exchange(error_, absl::OkStatus());
  return std::exchange(finished_, {});
}

void ServerEngine::StartServer() {
  if (server_.state() != InferenceServer::State::kDown || clock_.Now() < restart_at_) return;
  const std::optional<StoredWeights>& weights = lanes_[0].has_value() ? lanes_[0] : lanes_[1];
  if (!weights.has_value()) return;
  const absl::Status started = server_.Start(*weights);
  if (started.ok()) return;
  error_ = started;
  restart_at_ = clock_.Now() + options_.server.probe_period;
}

void ServerEngine::Schedule() {
  if (server_.state() != InferenceServer::State::kReady) return;
  const auto turn =
      static_cast<size_t>(HasWork(Lane::kEvaluation) ? Lane::kEvaluation : Lane::kRollout);
  if (!lanes_[turn].has_value()) return;
  const StoredWeights weights = *lanes_[turn];
  const bool swap = weights.policy != server_.loaded();
  const bool all = swap && !protocol_.traits().swaps_under_load;
  std::vector<Sample*> wait;
  ForEach([&](Sample& sample) {
    const Lane lane = sample.request->request.lane;
    const bool other = lanes_[static_cast<size_t>(lane)]->policy != weights.policy;
    // The version of a token that is shown must be known at once, not from the answer's spans.
    const bool shows = swap && sample.request->request.on_token != nullptr;
    if (sample.call != 0 && (all || other || shows || (paused_ && lane == Lane::kRollout))) {
      wait.push_back(&sample);
    }
  });
  if (!wait.empty()) {
    for (Sample* sample : Abort(std::move(wait))) {
      GiveUp(*sample->request,
             StatusOf(absl::StatusCode::kUnavailable,
                      "the server did not end its answer, of which tokens were shown"));
    }
    RemoveDone();
  }
  if (server_.state() != InferenceServer::State::kReady) return;
  if (swap) {
    const absl::Status loaded = server_.Load(weights);
    if (!loaded.ok()) return Lost(loaded);
    for (const auto& [call, sample] : by_call_) sample->answer->WeightsLoaded(weights.policy);
    last_progress_ = clock_.Now();
  }
  const absl::Time now = clock_.Now();
  ForEach([&](Sample& sample) {
    const Lane lane = sample.request->request.lane;
    if (sample.call != 0 || sample.done || now < sample.retry_at) return;
    if (LaneLoaded(lane) && !(paused_ && lane == Lane::kRollout)) StartCall(sample);
  });
}

void ServerEngine::StartCall(Sample& sample) {
  const GenerationRequest& request = sample.request->request;
  const auto kept = static_cast<int64_t>(sample.kept.response_ids.size());
  GenerateCall call;
  call.request_id = StrCat(options_.request_prefix, "-", ++last_request_);
  call.model = server_.name();
  call.cache_salt = StrCat(VersionLabel(server_.loaded()), ".", static_cast<int>(request.lane));
  call.token_ids = request.prompt_ids;
  call.token_ids.insert(call.token_ids.end(), sample.kept.response_ids.begin(),
                        sample.kept.response_ids.end());
  sample.answer.emplace(protocol_, request, sample.index, sample.kept, config_.vocab_size,
                        server_.loaded());
  call.max_tokens = sample.answer->max_tokens();
  call.seed = RandomBits(request.seed, static_cast<uint64_t>(request.ordinal),
                         static_cast<uint64_t>(sample.index), static_cast<uint64_t>(kept));
  const bool every = request.on_token != nullptr || request.sampling.stop_strings != nullptr;
  call.stream_interval = every ? 1 : options_.stream_interval;

  runtime::HttpCall http = protocol_.Generate(call, request.sampling);
  http.timeout = options_.generate_timeout;
  http.max_bytes = kBytesPerToken * (static_cast<size_t>(call.max_tokens) + 64);
  if (by_call_.empty()) last_progress_ = clock_.Now();
  sample.aborting = false;
  sample.request_id = call.request_id;
  // The first call may have generated for long: only its repetitions tell whether the server still
  // does.
  if (sample.tries <= 1) sample.tokens_before = TokensGenerated();
  tokens_prefilled_ += static_cast<int64_t>(call.token_ids.size());
  sample.call = calls_.Start(std::move(http));
  by_call_[sample.call] = &sample;
}

void ServerEngine::StopCall(Sample& sample) {
  if (sample.call == 0) return;
  calls_.Stop(sample.call);
  by_call_.erase(std::exchange(sample.call, 0));
  sample.answer.reset();
}

bool ServerEngine::TakeEvents(absl::Duration wait) {
  const std::vector<runtime::HttpCallEvent> events = calls_.Take(wait);
  for (const runtime::HttpCallEvent& event : events) {
    if (server_.TakeEvent(event)) continue;
    const auto found = by_call_.find(event.call);
    if (found == by_call_.end()) continue;  // of an abort, or stopped
    TakeEvent(*found->second, event);
  }
  return !events.empty();
}

void ServerEngine::TakeEvent(Sample& sample, const runtime::HttpCallEvent& event) {
  SampleCall& answer = *sample.answer;
  const size_t tokens = answer.tokens();
  const size_t read = answer.read();
  const bool was_cut = answer.cut();
  const absl::Status status = answer.Take(event);
  tokens_[static_cast<size_t>(sample.request->request.lane)] +=
      static_cast<int64_t>(answer.tokens() - tokens);
  if (answer.read() > read) last_progress_ = clock_.Now();
  if (!status.ok()) return CallFailed(sample, status);
  if (answer.read() > read || answer.ended()) abort_unanswered_ = false;
  if (answer.ended()) return EndAnswer(sample);
  // All spans are known at the end of the answer.
  if (answer.cut() && !was_cut) {
    sample.aborting = true;
    SendAbort({sample.request_id});
  }
}

void ServerEngine::EndAnswer(Sample& sample) {
  const absl::Status versions = sample.answer->CheckVersions();
  if (!versions.ok()) {
    return Lost(Internal("inference server ", server_.name(), " ", Message(versions)));
  }
  const GenerationRequest& request = sample.request->request;
  const bool stopped = sample.answer->stopped();
  if (sample.answer->tokens() > 0) sample.tries = 0;
  sample.answer->AppendTo(sample.kept);
  calls_.Stop(sample.call);  // the server may keep it open
  by_call_.erase(std::exchange(sample.call, 0));
  sample.answer.reset();
  if (stopped) {
    sample.kept.finish = FinishReason::kStop;
  } else if (std::ssize(sample.kept.response_ids) >= request.sampling.max_new_tokens) {
    sample.kept.finish = FinishReason::kLength;
  } else {
    if (!sample.aborting) {
      Retry(sample, StatusOf(absl::StatusCode::kUnavailable, "the server aborted a request"));
    }
    return;
  }
  sample.done = true;
  finished_.push_back({request.id, request.lane, sample.index, std::move(sample.kept)});
}

void ServerEngine::RemoveDone() {
  for (Request& request : requests_) {
    if (!request.error.ok()) {
      finished_.push_back({request.request.id, request.request.lane, 0, {}, request.error});
      request.samples.clear();
    }
    std::erase_if(request.samples, [](const Sample& sample) { return sample.done; });
  }
  std::erase_if(requests_, [](const Request& request) { return request.samples.empty(); });
}

void ServerEngine::Retry(Sample& sample, const absl::Status& why) {
  if (++sample.tries >= options_.most_tries) {
    // A server that has generated since the first repetition is not lost.
    if (IsTransient(why) && TokensGenerated() == sample.tokens_before) return Lost(why);
    return GiveUp(*sample.request, StatusOf(why.code(), sample.tries,
                                            " calls in a row failed, the last: ", Message(why)));
  }
  sample.retry_at =
      clock_.Now() + BackoffDelay(sample.tries, options_.retry_delay, options_.server.probe_period);
}

void ServerEngine::CallFailed(Sample& sample, const absl::Status& why) {
  const GenerationRequest& request = sample.request->request;
  // Tokens that were shown cannot be replaced by others.
  const bool shown = sample.answer->shown();
  StopCall(sample);
  if (absl::IsFailedPrecondition(why)) {  // all requests fail so
    error_.Update(Internal("request ", request.id, ": ", Message(why)));
    sample.retry_at = clock_.Now() + options_.server.probe_period;
    return;
  }
  if (shown || absl::IsInvalidArgument(why)) return GiveUp(*sample.request, why);
  Retry(sample, why);
}

void ServerEngine::GiveUp(Request& request, const absl::Status& why) {
  for (Sample& sample : request.samples) StopCall(sample);
  request.error.Update(StatusOf(why.code(), "request ", request.request.id, ": ", Message(why)));
}

void ServerEngine::SendAbort(const std::vector<std::string>& request_ids) {
  const bool all = request_ids.size() == by_call_.size();
  for (runtime::HttpCall& call : protocol_.Abort(request_ids, all)) {
    call.timeout = options_.server.call_timeout;
    calls_.Start(std::move(call));
  }
}

std::vector<ServerEngine::Sample*> ServerEngine::Abort(std::vector<Sample*> samples) {
  // An abort has no effect on a request that the server has not read yet, so it is repeated. A
  // server that left the last one unanswered is not waited for again.
  constexpr int kRounds = 4;
  const int rounds = abort_unanswered_ ? 1 : kRounds;
  const absl::Duration wait =
      abort_unanswered_ ? absl::ZeroDuration() : options_.abort_timeout / kRounds;
  const auto ended = [](const Sample* sample) { return sample->call == 0; };
  for (Sample* sample : samples) sample->aborting = true;
  for (int round = 0; round < rounds; ++round) {
    std::erase_if(samples, ended);
    if (samples.empty()) return {};
    std::vector<std::string> ids;
    ids.reserve(samples.size());
    for (const Sample* one : samples) ids.push_back(one->request_id);
    SendAbort(ids);
    const absl::Time deadline = clock_.Now() + wait;
    while (!std::ranges::all_of(samples, ended)) {
      const absl::Duration left = std::max(absl::ZeroDuration(), deadline - clock_.Now());
      if (!TakeEvents(left) || left == absl::ZeroDuration()) break;
    }
  }
  std::erase_if(samples, ended);
  if (!samples.empty()) {
    FRESHET_LOG(Warning) << "event=inference_server_abort_unanswered samples=" << samples.size();
    abort_unanswered_ = true;
  }
  // Closing the connection ends the request, too, but loses its tokens.
  std::vector<Sample*> shown;
  for (Sample* sample : samples) {
    if (sample->answer->shown()) shown.push_back(sample);
    StopCall(*sample);
  }
  return shown;
}

void ServerEngine::CheckProgress() {
  if (by_call_.empty() || clock_.Now() - last_progress_ < options_.stall_timeout) return;
  Lost(StatusOf(absl::StatusCode::kUnavailable, "inference server ", server_.name(),
                " has generated no token of ", by_call_.size(), " samples for ",
                absl::FormatDuration(options_.stall_timeout)));
}

void ServerEngine::Lost(const absl::Status& why) {
  FRESHET_LOG(Warning) << "event=inference_server_lost server=" << server_.name()
                       << " samples=" << by_call_.size() << " reason=" << LogQuoted(Message(why));
  ForEach([this](Sample& sample) {
    StopCall(sample);
    sample.tries = 0;
    sample.retry_at = absl::InfinitePast();
  });
  abort_unanswered_ = false;
  ++server_restarts_;
  error_ = StatusOf(absl::StatusCode::kUnavailable, Message(why));
  const std::optional<StoredWeights>& weights = lanes_[0].has_value() ? lanes_[0] : lanes_[1];
  const absl::Status started = server_.Start(*weights);
  if (!started.ok()) restart_at_ = clock_.Now() + options_.server.probe_period;
}

std::vector<GenerationOutput> ServerEngine::Cancel(int64_t request_id) {
  std::vector<GenerationOutput> partials;
  const auto is_asked = [&](const Request& r) { return r.request.id == request_id; };
  const auto found = std::ranges::find_if(requests_, is_asked);
  if (found != requests_.end()) {
    std::vector<Sample*> running;
    for (Sample& sample : found->samples) {
      if (sample.call != 0) running.push_back(&sample);
    }
    if (!running.empty()) Abort(std::move(running));
    for (Sample& sample : found->samples) {
      if (sample.done) continue;
      partials.push_back({request_id, found->request.lane, sample.index, std::move(sample.kept)});
    }
    requests_.erase(found);
  }
  // Samples that finished while they were aborted. Without their last token they can be continued.
  std::erase_if(finished_, [&](GenerationOutput& output) {
    if (output.request_id != request_id) return false;
    if (!output.error.ok()) return true;
    Response& response = output.response;
    response.finish = FinishReason::kNone;
    response.response_ids.pop_back();
    response.behavior_logprobs.pop_back();
    response.loss_mask.pop_back();
    if (!response.sampling_logprobs.empty()) response.sampling_logprobs.pop_back();
    if (--response.spans.back().end == response.spans.back().begin) response.spans.pop_back();
    partials.push_back(std::move(output));
    return true;
  });
  RemoveDone();
  return partials;
}

absl::Status ServerEngine::LoadWeights(Lane lane, const WeightSnapshot& snapshot) {
  const PolicyVersion& policy = snapshot.manifest.policy;
  const std::optional<StoredWeights>& other = lanes_[lane == Lane::kRollout ? 1 : 0];
  StoredWeights weights{policy, ""};
  if (other.has_value() && other->policy == policy) {
    weights.path = other->path;
  } else {
    FRESHET_ASSIGN_OR_RETURN(weights.path, folder_->Write(snapshot));
  }
  std::optional<StoredWeights>& stored = lanes_[static_cast<size_t>(lane)];
  if (lane == Lane::kRollout && stored.has_value()) ++weight_swaps_;
  const bool first = !lanes_[0].has_value() && !lanes_[1].has_value();
  stored = std::move(weights);
  if (first && server_.TakeOver(*stored)) last_progress_ = clock_.Now();
  StartServer();
  Schedule();
  std::vector<std::string> kept;
  for (const std::optional<StoredWeights>& one : lanes_) {
    if (one.has_value()) kept.push_back(one->path);
  }
  folder_->KeepOnly(kept);
  return absl::OkStatus();
}

PolicyVersion ServerEngine::version(Lane lane) const {
  const std::optional<StoredWeights>& weights = lanes_[static_cast<size_t>(lane)];
  // No new samples are taken before a server can generate them.
  const bool up = server_.state() == InferenceServer::State::kReady || lane == Lane::kEvaluation;
  return weights.has_value() && up ? weights->policy : PolicyVersion{-1, -1};
}

EngineStats ServerEngine::stats() const {
  EngineStats stats;
  for (const Request& request : requests_) {
    stats.running_sequences += std::ssize(request.samples);
  }
  stats.capacity_sequences = options_.max_sequences;
  stats.tokens_generated = tokens_[static_cast<size_t>(Lane::kRollout)];
  stats.tokens_generated_evaluation = tokens_[static_cast<size_t>(Lane::kEvaluation)];
  stats.tokens_prefilled = tokens_prefilled_;
  stats.weight_swaps = weight_swaps_;
  stats.max_tokens = server_.max_tokens();
  stats.servers_down = server_.state() == InferenceServer::State::kReady ? 0 : 1;
  stats.server_restarts = server_restarts_;
  return stats;
}

}  // namespace freshet
