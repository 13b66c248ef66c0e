#include "rollout/worker/episode_runner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/backoff.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "rollout/engine/engine_call.h"
#include "rollout/sessions/whole_response.h"

namespace freshet {
namespace {

// Separates the environment's random numbers from those of sampling.
constexpr uint64_t kEnvironmentStream = 0x656e766972ULL;
// A failure is forgotten after this time if no episode is open.
constexpr absl::Duration kFailureMemory = absl::Seconds(5);

EpisodeOptions WithLabel(EpisodeOptions options) {
  if (options.label.empty()) options.label = options.environment;
  return options;
}

}  // namespace

EpisodeRunner::EpisodeRunner(InferenceEngine& engine, EnvironmentClient& client, const Clock& clock,
                             EpisodeText text, EpisodeOptions options)
    : engine_(engine),
      client_(client),
      clock_(clock),
      text_(std::move(text)),
      options_(WithLabel(std::move(options))) {}

void EpisodeRunner::Start(EpisodeGroup spec) {
  const GroupKey key{spec.lane, spec.id};
  Cancel(spec.lane, spec.id);
  Group& group = groups_[key];
  group.spec = std::move(spec);
  for (size_t i = 0; i < group.spec.sample_indices.size(); ++i) {
    const int32_t index = group.spec.sample_indices[i];
    Episode& episode = group.episodes[index];
    episode.index = index;
    if (i < group.spec.uids.size()) episode.uid = group.spec.uids[i];
    Open(group, episode);
  }
  if (group.episodes.empty()) groups_.erase(key);
}

void EpisodeRunner::Open(Group& group, Episode& episode) {
  episode.id = ++last_episode_;
  episode.state = State::kResetting;
  episode.conversation.reset();
  episode.prompt.clear();
  episode.response = {};
  episode.reward = 0;
  episode.turns = 0;
  by_episode_[episode.id] = {{group.spec.lane, group.spec.id}, episode.index};
  EpisodeStart start;
  start.environment = options_.environment;
  start.seed =
      RandomBits(group.spec.seed, static_cast<uint64_t>(group.spec.ordinal), kEnvironmentStream);
  start.options = group.spec.attributes;
  start.options.insert(options_.options.begin(), options_.options.end());
  if (!episode.uid.empty()) {
    start.traceparent = Traceparent(MakeTraceContext(episode.uid, "rollout", options_.trace_ratio));
  }
  client_.Reset(episode.id, start);
}

void EpisodeRunner::OpenDelayed() {
  while (!delayed_.empty() && delayed_.begin()->first <= clock_.Now()) {
    const int64_t id = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    const auto found = by_episode_.find(id);
    if (found == by_episode_.end()) continue;
    const auto [key, index] = found->second;
    by_episode_.erase(found);
    Group& group = groups_.at(key);
    Open(group, group.episodes.at(index));
  }
}

void EpisodeRunner::Cancel(Lane lane, int64_t id) {
  const auto found = groups_.find({lane, id});
  if (found == groups_.end()) return;
  std::set<int64_t> requests;
  for (const auto& [index, episode] : found->second.episodes) {
    if (episode.state == State::kGenerating) requests.insert(episode.request);
    if (episode.state != State::kDelayed) client_.Close(episode.id);
    by_episode_.erase(episode.id);
  }
  for (const int64_t request : requests) {
    engine_.Cancel(request);
    by_request_.erase(request);
  }
  if (found->second.queued) ready_.remove(found->first);
  groups_.erase(found);
}

std::vector<EpisodeResult> EpisodeRunner::Advance(std::vector<GenerationOutput> outputs) {
  for (GenerationOutput& output : outputs) TakeOutput(std::move(output));
  OpenDelayed();
  // Terminates, because taking an event does not call an environment.
  for (std::vector<EpisodeEvent> events = client_.Poll(); !events.empty();
       events = client_.Poll()) {
    for (EpisodeEvent& event : events) TakeEvent(std::move(event));
  }
  SubmitReady();
  UpdateSilence();
  return std::exchange(results_, {});
}

// A repeatedly failing environment counts as silent even while nothing waits for it: episodes that
// were given up return with the next lease.
void EpisodeRunner::UpdateSilence() {
  absl::Time& since = counters_.silent_since;
  if (std::exchange(answered_, false)) {
    failing_ = false;
    since = absl::InfiniteFuture();
  }
  // Its groups went elsewhere, so the environment's state is unknown.
  if (groups_.empty() && clock_.Now() - failed_at_ > kFailureMemory) failing_ = false;
  const bool silent = failing_ || WaitingForEnvironment() > 0;
  since = silent ? std::min(since, clock_.Now()) : absl::InfiniteFuture();
}

void EpisodeRunner::TakeOutput(GenerationOutput output) {
  const auto request = by_request_.find(output.request_id);
  if (request == by_request_.end()) return;
  Group& group = groups_.at(request->second.group);
  if (--request->second.open == 0) by_request_.erase(request);
  Episode& episode = group.episodes.at(output.sample_index);
  const size_t begin = episode.response.response_ids.size();
  episode.response = std::move(output.response);
  episode.response.finish = FinishReason::kNone;
  ++episode.turns;
  episode.state = State::kStepping;
  const std::vector<int32_t>& ids = episode.response.response_ids;
  const std::vector<int32_t> turn(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
  episode.action = text_.decode(turn);
  client_.Step(episode.id, episode.action);
}

void EpisodeRunner::TakeEvent(EpisodeEvent event) {
  const auto found = by_episode_.find(event.episode);
  if (found == by_episode_.end()) return;
  Group& group = groups_.at(found->second.first);
  Episode& episode = group.episodes.at(found->second.second);
  if (episode.state != State::kResetting && episode.state != State::kStepping) return;
  if (!event.answer.ok()) return Fail(group, episode, event.answer.status());
  answered_ = true;
  ++answers_;
  TakeAnswer(group, episode, *event.answer);
}

void EpisodeRunner::TakeAnswer(Group& group, Episode& episode, const EpisodeAnswer& answer) {
  const bool reset = episode.state == State::kResetting;
  if (!std::isfinite(answer.reward)) {
    client_.Close(episode.id);
    return Fail(group, episode, Internal("the environment gave a reward that is not finite"));
  }
  if (reset && (answer.terminated || answer.truncated)) {
    client_.Close(episode.id);
    return Fail(group, episode, Internal("the environment ended the episode at its reset"));
  }
  episode.reward += answer.reward;
  if (answer.terminated) return Finish(group, episode, true);
  if (answer.truncated || episode.turns >= options_.max_turns) {
    return Finish(group, episode, false);
  }
  const size_t before = episode.response.response_ids.size();
  const absl::Status appended = AppendObservation(group, episode, answer);
  if (!appended.ok()) return GiveUp(group, episode, appended);
  const auto size = static_cast<int32_t>(episode.response.response_ids.size());
  if (size < MostTokens(group, episode)) return MakeReady(group, episode);
  if (reset) {
    return GiveUp(group, episode,
                  InvalidArgument("environment ", options_.label, ": the ",
                                  episode.conversation.has_value() ? "conversation" : "observation",
                                  " of a reset has ", std::ssize(episode.prompt) + size,
                                  " tokens, which leaves none of max_new_tokens ",
                                  group.spec.sampling.max_new_tokens));
  }
  // There is no room for a turn after this observation, so the response ends before it.
  Response& response = episode.response;
  response.response_ids.resize(before);
  response.behavior_logprobs.resize(before);
  if (!response.sampling_logprobs.empty()) response.sampling_logprobs.resize(before);
  response.loss_mask.resize(before);
  response.spans.back().end = static_cast<int32_t>(before);
  Finish(group, episode, false);
}

// The ids that an answer appends to the response. The answer to a reset begins the conversation.
absl::StatusOr<std::vector<int32_t>> EpisodeRunner::Encode(const Group& group, Episode& episode,
                                                           const EpisodeAnswer& answer) const {
  std::vector<int32_t> ids;
  if (!text_.converse) {
    if (!answer.messages.empty() || !answer.tools.empty()) {
      return InvalidArgument("messages or tools; they need environment.observations: messages");
    }
    if (answer.observation.empty()) return ids;
    return text_.encode(answer.observation);
  }
  if (episode.conversation.has_value()) {
    return episode.conversation->Append(episode.action, episode.response.response_ids.back(),
                                        answer);
  }
  const auto prompt = group.spec.attributes.find("prompt");
  if (prompt == group.spec.attributes.end()) return InvalidArgument("the row has no prompt");
  FRESHET_ASSIGN_OR_RETURN(episode.conversation, text_.converse(prompt->second));
  FRESHET_ASSIGN_OR_RETURN(episode.prompt, episode.conversation->Start(answer));
  return ids;
}

// Observation tokens belong to the span of the preceding turn: spans must cover the response, and
// tokens without loss have no version of their own.
absl::Status EpisodeRunner::AppendObservation(const Group& group, Episode& episode,
                                              const EpisodeAnswer& answer) {
  const absl::StatusOr<std::vector<int32_t>> ids = Encode(group, episode, answer);
  if (!ids.ok()) {
    // A template that refuses what the environment says does so again.
    const bool refused = absl::IsFailedPrecondition(ids.status());
    return StatusOf(refused ? absl::StatusCode::kInvalidArgument : ids.status().code(),
                    "environment ", options_.label, ": an observation of ",
                    answer.observation.size(), " bytes and ", answer.messages.size(),
                    " messages: ", Message(ids.status()));
  }
  if (ids->empty()) return absl::OkStatus();
  Response& response = episode.response;
  if (response.spans.empty()) {
    response.spans.push_back({engine_.version(group.spec.lane), 0, 0});
  }
  AppendWithoutLoss(*ids, response);
  return absl::OkStatus();
}

void EpisodeRunner::Fail(Group& group, Episode& episode, const absl::Status& status) {
  failing_ = true;
  failed_at_ = clock_.Now();
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return GiveUp(group, episode,
                  InvalidArgument("environment ", options_.label, ": ", Message(status)));
  }
  const bool full = status.code() == absl::StatusCode::kResourceExhausted;
  if (full) ++counters_.refused;
  if (!full || ++episode.refusals >= options_.max_refusals) {
    ++episode.failures;
    episode.refusals = 0;
    FRESHET_LOG(Warning) << "event=episode_failed "
                         << (episode.uid.empty() ? StrCat("ordinal=", group.spec.ordinal)
                                                 : TraceWords(episode.uid))
                         << " failures=" << episode.failures
                         << " reason=" << LogQuoted(Message(status));
  }
  if (episode.failures >= options_.max_failures) {
    return GiveUp(group, episode,
                  StatusOf(status.code(), "environment ", options_.label, ", ", episode.failures,
                           " failures, the last: ", Message(status)));
  }
  if (!full) ++counters_.restarted;
  const absl::Duration delay = BackoffDelay(episode.failures + episode.refusals,
                                            options_.retry_delay, options_.max_retry_delay);
  episode.state = State::kDelayed;
  delayed_.emplace(clock_.Now() + delay, episode.id);
}

void EpisodeRunner::Finish(Group& group, Episode& episode, bool terminated) {
  client_.Close(episode.id);
  ++(terminated ? counters_.terminated : counters_.truncated);
  counters_.turns += episode.turns;
  Response response = episode.conversation.has_value()
                          ? WithPrompt(episode.prompt, episode.response)
                          : std::move(episode.response);
  response.finish = terminated ? FinishReason::kStop : FinishReason::kLength;
  response.env_reward = episode.reward;
  const GroupKey key{group.spec.lane, group.spec.id};
  results_.push_back({key.first, key.second, episode.index, std::move(response)});
  Remove(key, episode.index);
}

void EpisodeRunner::GiveUp(Group& group, Episode& episode, absl::Status status,
                           bool engine_failed) {
  client_.Close(episode.id);
  ++counters_.given_up;
  const GroupKey key{group.spec.lane, group.spec.id};
  results_.push_back({key.first, key.second, episode.index, std::move(status), engine_failed});
  Remove(key, episode.index);
}

void EpisodeRunner::Remove(const GroupKey& key, int32_t index) {
  const auto group = groups_.find(key);
  const auto episode = group->second.episodes.find(index);
  by_episode_.erase(episode->second.id);
  group->second.episodes.erase(episode);
  if (!group->second.episodes.empty()) return;
  if (group->second.queued) ready_.remove(key);
  groups_.erase(group);
}

void EpisodeRunner::MakeReady(Group& group, Episode& episode) {
  episode.state = State::kReady;
  if (std::exchange(group.queued, true)) return;
  ready_.emplace_back(group.spec.lane, group.spec.id);
}

const std::vector<int32_t>& EpisodeRunner::PromptOf(const Group& group,
                                                    const Episode& episode) const {
  return episode.conversation.has_value() ? episode.prompt : group.spec.prompt_ids;
}

// Of the response after the prompt.
int32_t EpisodeRunner::MostTokens(const Group& group, const Episode& episode) const {
  return group.spec.sampling.max_new_tokens - static_cast<int32_t>(episode.prompt.size());
}

int32_t EpisodeRunner::TurnLimit(const Group& group, const Episode& episode) const {
  const int32_t most = MostTokens(group, episode);
  if (options_.max_turn_tokens <= 0) return most;
  const auto size = static_cast<int32_t>(episode.response.response_ids.size());
  return size + std::min(options_.max_turn_tokens, most - size);
}

void EpisodeRunner::SubmitReady() {
  while (!ready_.empty()) {
    const GroupKey key = ready_.front();
    Group& group = groups_.at(key);
    if (!SubmitGroup(group)) return;
    // Giving up the last episode removes a group and its queue entry.
    if (!groups_.contains(key)) continue;
    group.queued = false;
    ready_.remove(key);
  }
}

// Turns with the same prompt and length limit share a request. Returns false if the engine has no
// room for all of them, or fails.
bool EpisodeRunner::SubmitGroup(Group& group) {
  std::map<std::pair<std::vector<int32_t>, int32_t>, std::vector<Episode*>> together;
  for (auto& [index, episode] : group.episodes) {
    if (episode.state != State::kReady) continue;
    together[{episode.prompt, TurnLimit(group, episode)}].push_back(&episode);
  }
  for (auto& [key, turns] : together) {
    const int32_t limit = key.second;
    const std::ptrdiff_t prompt = std::ssize(PromptOf(group, *turns.front()));
    size_t first = 0;
    while (first < turns.size()) {
      SamplingParams sampling = group.spec.sampling;
      sampling.max_new_tokens = limit;
      size_t count = turns.size() - first;
      while (count > 1 &&
             engine_.Admissible(prompt, static_cast<int64_t>(count), sampling, 1) == 0) {
        count /= 2;
      }
      // If the engine is idle, submit anyway to get the reason for the refusal.
      if (engine_.Admissible(prompt, static_cast<int64_t>(count), sampling, 1) == 0 &&
          !engine_.Idle()) {
        return false;
      }
      const auto begin = turns.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<Episode*> part(begin, begin + static_cast<std::ptrdiff_t>(count));
      const absl::Status status = SubmitTurns(group, part, limit);
      if (status.code() == absl::StatusCode::kResourceExhausted) return false;
      first += count;
      if (status.ok()) continue;
      const bool all = part.size() == group.episodes.size();
      const bool failed = IsEngineFailure(status);
      for (Episode* episode : part) GiveUp(group, *episode, status, failed);
      if (failed) return false;
      if (all) return true;
    }
  }
  return true;
}

absl::Status EpisodeRunner::SubmitTurns(Group& group, const std::vector<Episode*>& turns,
                                        int32_t limit) {
  GenerationRequest request;
  request.id = last_request_ + 1;
  request.lane = group.spec.lane;
  request.prompt_ids = PromptOf(group, *turns.front());
  request.seed = group.spec.seed;
  request.ordinal = group.spec.ordinal;
  request.sampling = group.spec.sampling;
  request.sampling.max_new_tokens = limit;
  bool kept = false;
  for (const Episode* episode : turns) {
    request.sample_indices.push_back(episode->index);
    request.partials.push_back(episode->response);
    kept = kept || !episode->response.response_ids.empty();
  }
  if (!kept) request.partials.clear();
  FRESHET_RETURN_IF_ERROR(CallEngine([&] { return engine_.Submit(std::move(request)); }));
  const int64_t id = ++last_request_;
  by_request_[id] = {{group.spec.lane, group.spec.id}, static_cast<int64_t>(turns.size())};
  for (Episode* episode : turns) {
    episode->state = State::kGenerating;
    episode->request = id;
  }
  return absl::OkStatus();
}

EpisodeCounters EpisodeRunner::counters() const {
  EpisodeCounters counters = counters_;
  counters.open = open();
  counters.waiting_for_engine = WaitingForEngine();
  counters.waiting_for_environment = WaitingForEnvironment();
  return counters;
}

int64_t EpisodeRunner::WaitingForEngine() const {
  int64_t waiting = 0;
  for (const GroupKey& key : ready_) {
    for (const auto& [index, episode] : groups_.at(key).episodes) {
      waiting += episode.state == State::kReady ? 1 : 0;
    }
  }
  return waiting;
}

// All episodes that are neither in the engine nor queued for it.
int64_t EpisodeRunner::WaitingForEnvironment() const {
  int64_t waiting = open() - WaitingForEngine();
  for (const auto& [id, request] : by_request_) waiting -= request.open;
  return waiting;
}

}  // namespace freshet
