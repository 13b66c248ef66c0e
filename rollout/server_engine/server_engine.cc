#include "rollout/server_engine/server_engine.h"

#include <algorithm>
#include <set>
#include <string_view>
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
                           ServerEngineOptions options)
    : protocol_(protocol),
      config_(config),
      http_(std::move(calls)),
      folder_(std::move(folder)),
      clock_(clock),
      options_(std::move(options)),
      calls_(*http_),
      server_(protocol, calls_, *folder_, clock, options_.server) {}

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
  return std::ranges::any_of(requests_, [lane](const Request& request) {
    return request.request.lane == lane &&
           std::ranges::any_of(request.samples, [](const Sample& s) { return !s.failed; });
  });
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
      sample->failed = true;
      error_.Update(Internal("request ", sample->request->request.id,
                             ": the server did not end its answer, of which tokens were shown"));
    }
    RemoveDone();
  }
  if (server_.state() != InferenceServer::State::kReady) return;
  if (swap) {
    const absl::Status loaded = server_.Load(weights);
    if (!loaded.ok()) return Lost(loaded);
    for (const auto& [call, sample] : by_call_) sample->versions.push_back(weights.policy);
    last_progress_ = clock_.Now();
  }
  const absl::Time now = clock_.Now();
  ForEach([&](Sample& sample) {
    const Lane lane = sample.request->request.lane;
    if (sample.call != 0 || sample.failed || sample.done || now < sample.retry_at) return;
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
  call.max_tokens = request.sampling.max_new_tokens - kept;
  call.seed = RandomBits(request.seed, static_cast<uint64_t>(request.ordinal),
                         static_cast<uint64_t>(sample.index), static_cast<uint64_t>(kept));
  if (request.sampling.stop_strings != nullptr) {
    sample.matcher = request.sampling.stop_strings->MakeMatcher();
    for (const int32_t id : sample.kept.response_ids) sample.matcher->Add(id);
  }
  const bool every = request.on_token != nullptr || sample.matcher != nullptr;
  call.stream_interval = every ? 1 : options_.stream_interval;

  runtime::HttpCall http = protocol_.Generate(call, request.sampling);
  http.timeout = options_.generate_timeout;
  http.max_bytes = kBytesPerToken * (static_cast<size_t>(call.max_tokens) + 64);
  if (by_call_.empty()) last_progress_ = clock_.Now();
  sample.answer.emplace(config_.vocab_size, call.max_tokens, request.sampling.stop_ids);
  sample.lines = EventLines();
  sample.status = 0;
  sample.error_body.clear();
  sample.cut.reset();
  sample.aborting = false;
  sample.request_id = call.request_id;
  sample.versions = {server_.loaded()};
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
  std::vector<runtime::HttpCallEvent> events = calls_.Take(wait);
  for (runtime::HttpCallEvent& event : events) {
    if (server_.TakeEvent(event)) continue;
    const auto found = by_call_.find(event.call);
    if (found == by_call_.end()) continue;  // of an abort, or stopped
    last_progress_ = clock_.Now();
    TakeEvent(*found->second, std::move(event));
  }
  return !events.empty();
}

void ServerEngine::TakeEvent(Sample& sample, runtime::HttpCallEvent event) {
  sample.status = event.status;
  absl::Status status;
  if (event.status == 200) {
    std::vector<std::string> lines;
    status = sample.lines.Add(event.data, lines);
    for (const std::string& line : lines) {
      if (!status.ok() || sample.call == 0) break;
      status = TakeLine(sample, line);
    }
  } else {
    sample.error_body += event.data;
  }
  if (sample.call == 0) return;  // the answer has ended
  if (status.ok() && event.end) {
    status = !event.error.ok()     ? event.error
             : event.status == 200 ? StatusOf(absl::StatusCode::kUnavailable,
                                              "the server's answer stops before its end")
                                   : HttpError("generate", event.status, sample.error_body);
  }
  if (!status.ok()) CallFailed(sample, status);
}

absl::Status ServerEngine::TakeLine(Sample& sample, const std::string& line) {
  FRESHET_ASSIGN_OR_RETURN(GenerateEvent event, protocol_.ParseEvent(line, *sample.answer));
  if (!event.piece.has_value()) return absl::OkStatus();
  return TakePiece(sample, *std::move(event.piece));
}

absl::Status ServerEngine::TakePiece(Sample& sample, GeneratedPiece piece) {
  const GenerationRequest& request = sample.request->request;
  SampleAnswer& answer = *sample.answer;
  const size_t before = answer.ids().size();
  const bool was_cut = sample.cut.has_value();
  FRESHET_RETURN_IF_ERROR(answer.Add(std::move(piece)));
  if (answer.ids().size() > before) sample.tries = 0;
  for (size_t i = before; i < answer.ids().size() && !sample.cut.has_value(); ++i) {
    ++tokens_[static_cast<size_t>(request.lane)];
    const int32_t id = answer.ids()[i];
    const bool stop = sample.matcher != nullptr && sample.matcher->Add(id);
    if (stop) sample.cut = i + 1;
    if (request.on_token == nullptr) continue;
    GeneratedToken token;
    token.sample_index = sample.index;
    token.token.id = id;
    token.token.logprob = token.token.sampling_logprob = answer.logprobs()[i];
    token.policy = sample.versions.back();
    const bool last = i + 1 == answer.ids().size();
    if (stop || (last && answer.end() == PieceEnd::kStop)) {
      token.finish = FinishReason::kStop;
    } else if (last && answer.end() == PieceEnd::kLength) {
      token.finish = FinishReason::kLength;
    }
    request.on_token(token);
  }
  if (answer.end() != PieceEnd::kNone) return EndAnswer(sample);
  // All spans are known at the end of the answer.
  if (sample.cut.has_value() && !was_cut) {
    sample.aborting = true;
    SendAbort({sample.request_id});
  }
  return absl::OkStatus();
}

absl::Status ServerEngine::EndAnswer(Sample& sample) {
  const SampleAnswer& answer = *sample.answer;
  for (const Span& span : answer.spans()) {
    if (std::ranges::find(sample.versions, span.policy) != sample.versions.end()) continue;
    Lost(Internal("inference server ", server_.name(), " generated with ",
                  span.policy == kForeignVersion ? "an unknown weight version"
                                                 : "weight version " + VersionLabel(span.policy),
                  ", which was not loaded during the call"));
    return absl::OkStatus();
  }
  const GenerationRequest& request = sample.request->request;
  const PieceEnd end = answer.end();
  const size_t count = sample.cut.value_or(answer.ids().size());
  AppendAnswer(answer, count, request.sampling.ChangesDistribution(), sample.kept);
  // The rest of the stream has nothing of interest.
  by_call_.erase(std::exchange(sample.call, 0));
  sample.answer.reset();
  if (sample.cut.has_value() || end == PieceEnd::kStop) {
    sample.kept.finish = FinishReason::kStop;
  } else if (std::ssize(sample.kept.response_ids) >= request.sampling.max_new_tokens) {
    sample.kept.finish = FinishReason::kLength;
  } else {
    if (!sample.aborting)
      Retry(sample, StatusOf(absl::StatusCode::kUnavailable, "the server aborted a request"));
    return absl::OkStatus();
  }
  sample.done = true;
  finished_.push_back({request.id, request.lane, sample.index, std::move(sample.kept)});
  return absl::OkStatus();
}

void ServerEngine::RemoveDone() {
  for (Request& request : requests_) {
    std::erase_if(request.samples, [](const Sample& sample) { return sample.done; });
  }
  std::erase_if(requests_, [](const Request& request) { return request.samples.empty(); });
}

void ServerEngine::Retry(Sample& sample, const absl::Status& why) {
  if (++sample.tries >= options_.most_tries) return Lost(why);
  sample.retry_at =
      clock_.Now() + BackoffDelay(sample.tries, options_.retry_delay, options_.server.probe_period);
}

bool ServerEngine::HasShown(const Sample& sample) const {
  return sample.request->request.on_token != nullptr && sample.answer.has_value() &&
         !sample.answer->ids().empty();
}

void ServerEngine::CallFailed(Sample& sample, const absl::Status& why) {
  const GenerationRequest& request = sample.request->request;
  // Tokens that were shown cannot be replaced by others.
  const bool shown = HasShown(sample);
  StopCall(sample);
  if (IsTransient(why) && !shown) return Retry(sample, why);
  sample.failed = true;
  error_.Update(Internal("request ", request.id, ": ", Message(why)));
}

void ServerEngine::SendAbort(const std::vector<std::string>& request_ids) {
  const bool all = request_ids.size() == by_call_.size();
  for (runtime::HttpCall& call : protocol_.Abort(request_ids, all)) {
    call.timeout = options_.server.call_timeout;
    calls_.Start(std::move(call));
  }
}

std::vector<ServerEngine::Sample*> ServerEngine::Abort(std::vector<Sample*> samples) {
  // An abort has no effect on a request that the server has not read yet, so it is repeated.
  constexpr int kRounds = 4;
  const auto ended = [](const Sample* sample) { return sample->call == 0; };
  for (Sample* sample : samples) sample->aborting = true;
  for (int round = 0; round < kRounds; ++round) {
    std::erase_if(samples, ended);
    if (samples.empty()) return {};
    std::vector<std::string> ids;
    for (const Sample* one : samples) ids.push_back(one->request_id);
    SendAbort(ids);
    const absl::Time deadline = clock_.Now() + options_.abort_timeout / kRounds;
    while (!std::ranges::all_of(samples, ended)) {
      const absl::Duration left = deadline - clock_.Now();
      if (left <= absl::ZeroDuration()) break;
      if (!TakeEvents(left)) break;
    }
  }
  std::erase_if(samples, ended);
  if (!samples.empty()) {
    FRESHET_LOG(Warning) << "event=inference_server_abort_unanswered samples=" << samples.size();
  }
  // Closing the connection ends the request, too, but loses its tokens.
  std::vector<Sample*> shown;
  for (Sample* sample : samples) {
    if (HasShown(*sample)) shown.push_back(sample);
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
  if (found == requests_.end()) return partials;
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
  // Samples that finished while they were aborted. Without their last token they can be continued.
  std::erase_if(finished_, [&](GenerationOutput& output) {
    if (output.request_id != request_id) return false;
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
  stats.servers_down = server_.state() == InferenceServer::State::kReady ? 0 : 1;
  stats.server_restarts = server_restarts_;
  return stats;
}

}  // namespace freshet
