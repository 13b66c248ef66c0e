#include "rollout/worker/episode_runner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/task_field.h"
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

// Whether an answer can be used. `reward` is that of the answers before it.
absl::Status CheckAnswer(const EpisodeAnswer& answer, bool reset, double reward) {
  if (!std::isfinite(answer.reward)) {
    return Internal("the environment gave a reward that is not finite");
  }
  if (!std::isfinite(answer.cost) || answer.cost < 0) {
    return Internal("the environment gave a cost that is not finite and at least 0: ", answer.cost);
  }
  if (reset && (answer.terminated || answer.truncated)) {
    return Internal("the environment ended the episode at its reset");
  }
  if (!std::isfinite(reward + answer.reward)) {
    return Internal("the sum of the environment's rewards is not finite");
  }
  return absl::OkStatus();
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
  Cancel(spec.lane, spec.id);
  Group& group = table_.Add(std::move(spec));
  for (auto& [index, episode] : group.episodes) Open(group, episode);
  if (group.episodes.empty()) table_.RemoveGroup(group.key());
}

void EpisodeRunner::Open(Group& group, Episode& episode) {
  table_.SetNewId(group, episode);
  episode.state = State::kResetting;
  episode.conversation.reset();
  episode.segments.clear();
  episode.prompt.clear();
  episode.response = {};
  episode.reward = 0;
  episode.cost = 0;
  episode.tokens = 0;
  episode.step_rewards.clear();
  episode.invalid_turns.clear();
  episode.turns = 0;
  episode.began = clock_.Now();
  EpisodeStart start;
  const auto own = options_.environment_by_task.find(TaskOfRow(group.spec.attributes));
  start.environment =
      own == options_.environment_by_task.end() ? options_.environment : own->second;
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
  const absl::Time now = clock_.Now();
  for (auto due = table_.TakeDue(now); due.group != nullptr; due = table_.TakeDue(now)) {
    Open(*due.group, *due.episode);
  }
}

void EpisodeRunner::Cancel(Lane lane, int64_t id) {
  const GroupKey key{lane, id};
  const Group* const group = table_.FindGroup(key);
  if (group == nullptr) return;
  std::set<int64_t> requests;
  for (const auto& [index, episode] : group->episodes) {
    if (episode.state == State::kGenerating) requests.insert(episode.request);
    if (episode.state != State::kDelayed) client_.Close(episode.id);
  }
  for (const int64_t request : requests) {
    engine_.Cancel(request);
    by_request_.erase(request);
  }
  ready_.remove(key);
  table_.RemoveGroup(key);
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
  if (table_.empty() && clock_.Now() - failed_at_ > kFailureMemory) failing_ = false;
  const bool silent = failing_ || WaitingForEnvironment() > 0;
  since = silent ? std::min(since, clock_.Now()) : absl::InfiniteFuture();
}

void EpisodeRunner::TakeOutput(GenerationOutput output) {
  const auto request = by_request_.find(output.request_id);
  if (request == by_request_.end()) return;
  if (!output.error.ok()) return RequestFailed(output.request_id, output.error);
  Group& group = *table_.FindGroup(request->second.group);
  if (--request->second.open == 0) by_request_.erase(request);
  Episode& episode = group.episodes.at(output.sample_index);
  const size_t begin = episode.response.response_ids.size();
  episode.turn_begin = static_cast<int32_t>(begin);
  episode.response = std::move(output.response);
  episode.response.finish = FinishReason::kNone;
  episode.tokens += std::ssize(episode.response.response_ids) - episode.turn_begin;
  ++episode.turns;
  episode.state = State::kStepping;
  const std::vector<int32_t>& ids = episode.response.response_ids;
  const std::vector<int32_t> turn(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
  episode.action = text_.decode(turn);
  client_.Step(episode.id, episode.action);
}

void EpisodeRunner::RequestFailed(int64_t request, const absl::Status& why) {
  const GroupKey key = by_request_.extract(request).mapped().group;
  Group& group = *table_.FindGroup(key);
  std::vector<Episode*> failed;
  for (auto& [index, episode] : group.episodes) {
    if (episode.state == State::kGenerating && episode.request == request) {
      failed.push_back(&episode);
    }
  }
  // Giving up the last episode removes the group.
  for (Episode* episode : failed) GiveUp(group, *episode, why, EpisodeFailure::kRequest);
}

void EpisodeRunner::TakeEvent(EpisodeEvent event) {
  const Table::Place place = table_.Find(event.episode);
  if (place.group == nullptr) return;
  Group& group = *place.group;
  Episode& episode = *place.episode;
  if (episode.state != State::kResetting && episode.state != State::kStepping) return;
  if (!event.answer.ok()) return Fail(group, episode, event.answer.status());
  answered_ = true;
  ++answers_;
  TakeAnswer(group, episode, *event.answer);
}

void EpisodeRunner::TakeAnswer(Group& group, Episode& episode, const EpisodeAnswer& answer) {
  const bool reset = episode.state == State::kResetting;
  if (const absl::Status usable = CheckAnswer(answer, reset, episode.reward); !usable.ok()) {
    client_.Close(episode.id);
    return Fail(group, episode, usable);
  }
  episode.reward += answer.reward;
  episode.cost += answer.cost;
  if (!reset) {
    const auto turn_end = static_cast<int32_t>(episode.response.response_ids.size());
    episode.step_rewards.push_back({turn_end, answer.reward});
    if (answer.invalid && options_.mask_invalid_turns) {
      episode.invalid_turns.push_back({episode.turn_begin, turn_end});
    }
  }
  if (answer.terminated) return Finish(group, episode, std::nullopt);
  if (answer.truncated) return Finish(group, episode, EpisodeLimit::kEnvironment);
  if (!reset) {
    const std::optional<EpisodeLimit> reached = ReachedLimit(
        {episode.turns, episode.tokens, episode.cost, clock_.Now() - episode.began}, options_);
    if (reached.has_value()) return Finish(group, episode, reached);
  }
  if (!reset && answer.new_context) return BeginContext(group, episode, answer);
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
  Finish(group, episode, EpisodeLimit::kTokens);
}

// The ids that an answer appends to the response. The answer to a reset begins the conversation.
absl::StatusOr<std::vector<int32_t>> EpisodeRunner::Encode(const Group& group, Episode& episode,
                                                           const EpisodeAnswer& answer) const {
  std::vector<int32_t> ids;
  if (!text_.converse) {
    if (!answer.messages.empty() || !answer.tools.empty() || answer.new_context) {
      return InvalidArgument(
          "messages, tools or a new context; they need environment.observations: messages");
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

// The error for an answer that cannot be encoded.
absl::Status EpisodeRunner::EncodeError(const EpisodeAnswer& answer,
                                        const absl::Status& why) const {
  // A template that refuses what the environment says does so again.
  const bool refused = absl::IsFailedPrecondition(why);
  return StatusOf(refused ? absl::StatusCode::kInvalidArgument : why.code(), "environment ",
                  options_.label, ": an observation of ", answer.observation.size(), " bytes and ",
                  answer.messages.size(), " messages: ", Message(why));
}

// Observation tokens belong to the span of the preceding turn: spans must cover the response, and
// tokens without loss have no version of their own.
absl::Status EpisodeRunner::AppendObservation(const Group& group, Episode& episode,
                                              const EpisodeAnswer& answer) {
  const absl::StatusOr<std::vector<int32_t>> ids = Encode(group, episode, answer);
  if (!ids.ok()) return EncodeError(answer, ids.status());
  if (ids->empty()) return absl::OkStatus();
  Response& response = episode.response;
  if (response.spans.empty()) {
    response.spans.push_back({engine_.version(group.spec.lane), 0, 0});
  }
  AppendWithoutLoss(*ids, response);
  return absl::OkStatus();
}

// Ends the segment and begins another one.
void EpisodeRunner::BeginContext(Group& group, Episode& episode, const EpisodeAnswer& answer) {
  if (!episode.conversation.has_value() || options_.max_conversations <= 1) {
    return GiveUp(group, episode,
                  EncodeError(answer, InvalidArgument(
                                          "a new context needs environment.observations: messages "
                                          "and environment.max_conversations above 1")));
  }
  if (std::ssize(episode.segments) + 1 >= options_.max_conversations) {
    return Finish(group, episode, EpisodeLimit::kConversations);
  }
  absl::StatusOr<std::vector<int32_t>> prompt = episode.conversation->Start(answer);
  if (!prompt.ok()) return GiveUp(group, episode, EncodeError(answer, prompt.status()));
  // No room for a turn in it.
  if (std::ssize(*prompt) >= group.spec.sampling.max_new_tokens) {
    return Finish(group, episode, EpisodeLimit::kTokens);
  }
  episode.response.step_rewards = std::exchange(episode.step_rewards, {});
  MaskTurns(std::exchange(episode.invalid_turns, {}), episode.response);
  episode.segments.push_back(WithPrompt(episode.prompt, episode.response));
  episode.response = {};
  episode.prompt = *std::move(prompt);
  MakeReady(group, episode);
}

void EpisodeRunner::Fail(Group& group, Episode& episode, const absl::Status& status) {
  failing_ = true;
  failed_at_ = clock_.Now();
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return GiveUp(group, episode,
                  InvalidArgument("environment ", options_.label, ": ", Message(status)));
  }
  episode.state = State::kDelayed;
  if (table_.Retry(group, episode, status, options_, clock_.Now(), counters_)) return;
  GiveUp(group, episode,
         StatusOf(status.code(), "environment ", options_.label, ", ", episode.failures,
                  " failures, the last: ", Message(status)));
}

void EpisodeRunner::Finish(Group& group, Episode& episode, std::optional<EpisodeLimit> limit) {
  client_.Close(episode.id);
  CountEnd(limit, counters_);
  counters_.turns += episode.turns;
  episode.response.step_rewards = std::move(episode.step_rewards);
  MaskTurns(std::exchange(episode.invalid_turns, {}), episode.response);
  Response response = std::move(episode.response);
  if (episode.conversation.has_value()) {
    episode.segments.push_back(WithPrompt(episode.prompt, response));
    response = JoinSegments(std::move(episode.segments));
  }
  response.finish = limit.has_value() ? FinishReason::kLength : FinishReason::kStop;
  response.env_reward = episode.reward;
  results_.push_back({group.spec.lane, group.spec.id, episode.index, std::move(response)});
  Remove(group, episode);
}

void EpisodeRunner::GiveUp(Group& group, Episode& episode, absl::Status status,
                           EpisodeFailure failure) {
  client_.Close(episode.id);
  ++counters_.given_up;
  results_.push_back({group.spec.lane, group.spec.id, episode.index, std::move(status), failure});
  Remove(group, episode);
}

void EpisodeRunner::Remove(Group& group, const Episode& episode) {
  if (group.episodes.size() == 1) ready_.remove(group.key());
  table_.Remove(group, episode);
}

void EpisodeRunner::MakeReady(const Group& group, Episode& episode) {
  episode.state = State::kReady;
  const GroupKey key = group.key();
  if (std::find(ready_.begin(), ready_.end(), key) == ready_.end()) ready_.push_back(key);
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
  const auto size = static_cast<int32_t>(episode.response.response_ids.size());
  int64_t turn = std::min<int64_t>(MostTokens(group, episode) - size,
                                   options_.max_episode_tokens - episode.tokens);
  if (options_.max_turn_tokens > 0) turn = std::min<int64_t>(turn, options_.max_turn_tokens);
  return size + static_cast<int32_t>(turn);
}

void EpisodeRunner::SubmitReady() {
  while (!ready_.empty()) {
    const GroupKey key = ready_.front();
    if (!SubmitGroup(*table_.FindGroup(key))) return;
    ready_.remove(key);
  }
}

// Turns of segments with the same number, prompt and length limit share a request. Returns false if
// the engine has no room for all of them, or fails.
bool EpisodeRunner::SubmitGroup(Group& group) {
  std::map<std::tuple<std::vector<int32_t>, int32_t, size_t>, std::vector<Episode*>> together;
  for (auto& [index, episode] : group.episodes) {
    if (episode.state != State::kReady) continue;
    together[{episode.prompt, TurnLimit(group, episode), episode.segments.size()}].push_back(
        &episode);
  }
  for (auto& [key, turns] : together) {
    const int32_t limit = std::get<1>(key);
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
      const auto failure = failed ? EpisodeFailure::kEngine : EpisodeFailure::kEnvironment;
      for (Episode* episode : part) GiveUp(group, *episode, status, failure);
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
  request.seed = SegmentSeed(group.spec.seed, turns.front()->segments.size());
  request.ordinal = group.spec.ordinal;
  request.sampling = group.spec.sampling;
  request.sampling.max_new_tokens = limit;
  request.sampling.min_new_tokens = std::min(request.sampling.min_new_tokens, limit);
  bool kept = false;
  for (const Episode* episode : turns) {
    request.sample_indices.push_back(episode->index);
    request.partials.push_back(episode->response);
    kept = kept || !episode->response.response_ids.empty();
  }
  if (!kept) request.partials.clear();
  FRESHET_RETURN_IF_ERROR(CallEngine([&] { return engine_.Submit(std::move(request)); }));
  const int64_t id = ++last_request_;
  by_request_[id] = {group.key(), static_cast<int64_t>(turns.size())};
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
    for (const auto& [index, episode] : table_.FindGroup(key)->episodes) {
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
