#include "rollout/worker/agent_runner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Separates the agent's random numbers from those of sampling.
constexpr uint64_t kAgentStream = 0x6167656e74ULL;

// In place of what a policy that was not asked would have said: a context and a token after it,
// since a segment has both. Any id will do, as CompletionIds leaves them out.
Response NotAsked(const SamplingParams& sampling, PolicyVersion policy) {
  Response response;
  response.response_ids.assign(2, sampling.stop_ids.empty() ? 0 : sampling.stop_ids.front());
  response.behavior_logprobs.assign(2, 0.0F);
  response.loss_mask.assign(2, 0);
  response.spans = {{policy, 0, 2}};
  return response;
}

}  // namespace

AgentRunner::AgentRunner(GenerationQueue& queue, SessionRegistry& sessions, AgentClient& client,
                         const Clock& clock, AgentOptions options)
    : queue_(queue),
      sessions_(sessions),
      client_(client),
      clock_(clock),
      options_(std::move(options)) {}

void AgentRunner::Start(EpisodeGroup spec) {
  Cancel(spec.lane, spec.id);
  Group& group = table_.Add(std::move(spec));
  for (auto& [index, episode] : group.episodes) Enqueue(group, episode);
  if (group.episodes.empty()) table_.RemoveGroup(group.key());
}

void AgentRunner::Enqueue(Group& group, Episode& episode) {
  table_.SetNewId(group, episode);
  episode.state = State::kWaiting;
  waiting_.push_back(episode.id);
}

void AgentRunner::EnqueueDelayed() {
  const absl::Time now = clock_.Now();
  for (auto due = table_.TakeDue(now); due.group != nullptr; due = table_.TakeDue(now)) {
    Enqueue(*due.group, *due.episode);
  }
}

void AgentRunner::PlayWaiting() {
  while (!waiting_.empty() && playing_ < options_.max_concurrent) {
    const Table::Place place = table_.Find(waiting_.front());
    waiting_.pop_front();
    if (place.group != nullptr) Play(*place.group, *place.episode);
  }
}

void AgentRunner::Play(Group& group, Episode& episode) {
  const EpisodeGroup& spec = group.spec;
  SessionOptions session;
  session.lane = spec.lane;
  session.seed = spec.seed;
  session.ordinal = spec.ordinal;
  session.sample_index = episode.index;
  session.sampling = spec.sampling;
  session.max_conversations = options_.max_conversations;
  session.max_tokens = options_.max_episode_tokens;
  absl::StatusOr<std::string> key = sessions_.Open(std::move(session));
  if (!key.ok()) return Fail(group, episode, key.status());
  episode.key = *std::move(key);
  episode.state = State::kPlaying;
  ++playing_;
  AgentTask task;
  task.base_url = options_.base_url;
  task.api_key = episode.key;
  task.model = options_.model;
  task.seed = RandomBits(spec.seed, static_cast<uint64_t>(spec.ordinal), kAgentStream);
  task.row = spec.attributes;
  task.options = options_.options;
  task.chat = options_.chat;
  task.sample = episode.uid;
  task.timeout = options_.timeout;
  client_.Start(episode.id, task);
}

SessionRecord AgentRunner::EndSession(Episode& episode) {
  --playing_;
  SessionRecord record = sessions_.Close(episode.key);
  episode.key.clear();
  return record;
}

void AgentRunner::Cancel(Lane lane, int64_t id) {
  Group* const group = table_.FindGroup({lane, id});
  if (group == nullptr) return;
  for (auto& [index, episode] : group->episodes) {
    if (episode.state != State::kPlaying) continue;
    client_.Stop(episode.id);
    EndSession(episode);
  }
  table_.RemoveGroup({lane, id});
}

std::vector<EpisodeResult> AgentRunner::Advance(std::vector<GenerationOutput> /*outputs*/) {
  EnqueueDelayed();
  for (const AgentEvent& event : client_.Poll()) TakeEvent(event);
  PlayWaiting();
  UpdateSilence();
  return std::exchange(results_, {});
}

void AgentRunner::TakeEvent(const AgentEvent& event) {
  const Table::Place place = table_.Find(event.episode);
  if (place.group == nullptr || place.episode->state != State::kPlaying) return;
  Group& group = *place.group;
  Episode& episode = *place.episode;
  if (event.reward.ok()) return Finish(group, episode, *event.reward);
  // An agent may print the key in an error.
  const std::string why =
      absl::StrReplaceAll(Message(event.reward.status()), {{episode.key, "<session key>"}});
  const absl::Status engine_error = EndSession(episode).engine_error;
  if (engine_error.ok()) return Fail(group, episode, StatusOf(event.reward.status().code(), why));
  Fail(
      group, episode,
      StatusOf(engine_error.code(), why, " after its last request failed: ", Message(engine_error)),
      EpisodeFailure::kRequest);
}

void AgentRunner::Finish(Group& group, Episode& episode, const AgentReward& reward) {
  SessionRecord record = EndSession(episode);
  const bool asked = record.requests > 0;
  if (!asked && !(reward.requests_optional && record.engine_error.ok())) {
    return Fail(group, episode,
                Internal("the agent gave a reward, but no request with its API key was answered"));
  }
  if (!asked) {
    ++counters_.not_asked;
    record.response = NotAsked(group.spec.sampling, queue_.version(group.spec.lane));
  }
  answered_ = true;
  ++answers_;
  std::optional<EpisodeLimit> limit = record.limit;
  if (!limit.has_value() && reward.truncated) limit = EpisodeLimit::kEnvironment;
  CountEnd(limit, counters_);
  counters_.turns += record.requests;
  record.response.finish = !asked              ? FinishReason::kNotAsked
                           : limit.has_value() ? FinishReason::kLength
                                               : FinishReason::kStop;
  record.response.env_reward = reward.reward;
  results_.push_back({group.spec.lane, group.spec.id, episode.index, std::move(record.response)});
  table_.Remove(group, episode);
}

void AgentRunner::Fail(Group& group, Episode& episode, const absl::Status& status,
                       EpisodeFailure failure) {
  failing_ = failure == EpisodeFailure::kEnvironment;
  episode.state = State::kDelayed;
  if (table_.Retry(group, episode, status, options_, clock_.Now(), counters_)) return;
  ++counters_.given_up;
  results_.push_back({group.spec.lane, group.spec.id, episode.index,
                      StatusOf(status.code(), "agent ", options_.label, ", ", episode.failures,
                               " failures, the last: ", Message(status)),
                      failure});
  table_.Remove(group, episode);
}

// Episodes take long, so an agent is silent only while it fails.
void AgentRunner::UpdateSilence() {
  absl::Time& since = counters_.silent_since;
  if (std::exchange(answered_, false)) failing_ = false;
  if (table_.empty()) failing_ = false;
  since = failing_ ? std::min(since, clock_.Now()) : absl::InfiniteFuture();
}

EpisodeCounters AgentRunner::counters() const {
  EpisodeCounters counters = counters_;
  counters.open = open();
  counters.waiting_for_engine = queue_.stats().waiting;
  counters.waiting_for_environment = playing_;
  return counters;
}

}  // namespace freshet
