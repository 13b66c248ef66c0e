#include "rollout/worker/agent_runner.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "base/trace.h"

namespace freshet {
namespace {

// Separates the agent's random numbers from those of sampling.
constexpr uint64_t kAgentStream = 0x6167656e74ULL;

}  // namespace

AgentRunner::AgentRunner(GenerationQueue& queue, SessionRegistry& sessions, AgentClient& client,
                         const Clock& clock, AgentOptions options)
    : queue_(queue),
      sessions_(sessions),
      client_(client),
      clock_(clock),
      options_(std::move(options)) {}

void AgentRunner::Start(EpisodeGroup spec) {
  const GroupKey key{spec.lane, spec.id};
  Cancel(spec.lane, spec.id);
  Group& group = groups_[key];
  group.spec = std::move(spec);
  for (size_t i = 0; i < group.spec.sample_indices.size(); ++i) {
    const int32_t index = group.spec.sample_indices[i];
    Episode& episode = group.episodes[index];
    episode.index = index;
    if (i < group.spec.uids.size()) episode.uid = group.spec.uids[i];
    Enqueue(group, episode);
  }
  if (group.episodes.empty()) groups_.erase(key);
}

void AgentRunner::Enqueue(Group& group, Episode& episode) {
  episode.id = ++last_episode_;
  episode.state = State::kWaiting;
  by_episode_[episode.id] = {{group.spec.lane, group.spec.id}, episode.index};
  waiting_.push_back(episode.id);
}

void AgentRunner::EnqueueDelayed() {
  while (!delayed_.empty() && delayed_.begin()->first <= clock_.Now()) {
    const int64_t id = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    const auto found = by_episode_.find(id);
    if (found == by_episode_.end()) continue;
    const auto [key, index] = found->second;
    by_episode_.erase(found);
    Group& group = groups_.at(key);
    Enqueue(group, group.episodes.at(index));
  }
}

void AgentRunner::PlayWaiting() {
  while (!waiting_.empty() && playing_ < options_.max_concurrent) {
    const auto found = by_episode_.find(waiting_.front());
    waiting_.pop_front();
    if (found == by_episode_.end()) continue;
    Group& group = groups_.at(found->second.first);
    Play(group, group.episodes.at(found->second.second));
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
  const auto found = groups_.find({lane, id});
  if (found == groups_.end()) return;
  for (auto& [index, episode] : found->second.episodes) {
    if (episode.state == State::kPlaying) {
      client_.Stop(episode.id);
      EndSession(episode);
    }
    by_episode_.erase(episode.id);
  }
  groups_.erase(found);
}

std::vector<EpisodeResult> AgentRunner::Advance(std::vector<GenerationOutput> /*outputs*/) {
  EnqueueDelayed();
  for (const AgentEvent& event : client_.Poll()) TakeEvent(event);
  PlayWaiting();
  UpdateSilence();
  return std::exchange(results_, {});
}

void AgentRunner::TakeEvent(const AgentEvent& event) {
  const auto found = by_episode_.find(event.episode);
  if (found == by_episode_.end()) return;
  Group& group = groups_.at(found->second.first);
  Episode& episode = group.episodes.at(found->second.second);
  if (episode.state != State::kPlaying) return;
  if (event.reward.ok()) return Finish(group, episode, *event.reward);
  // An agent may print the key in an error.
  const absl::Status status = StatusOf(
      event.reward.status().code(),
      absl::StrReplaceAll(Message(event.reward.status()), {{episode.key, "<session key>"}}));
  EndSession(episode);
  Fail(group, episode, status);
}

void AgentRunner::Finish(Group& group, Episode& episode, const AgentReward& reward) {
  SessionRecord record = EndSession(episode);
  if (record.requests == 0) {
    return Fail(group, episode,
                Internal("the agent gave a reward, but no request with its API key was answered"));
  }
  answered_ = true;
  ++answers_;
  const bool truncated = reward.truncated || record.exhausted;
  ++(truncated ? counters_.truncated : counters_.terminated);
  counters_.turns += record.requests;
  record.response.finish = truncated ? FinishReason::kLength : FinishReason::kStop;
  record.response.env_reward = reward.reward;
  const GroupKey key{group.spec.lane, group.spec.id};
  results_.push_back({key.first, key.second, episode.index, std::move(record.response)});
  Remove(key, episode.index);
}

void AgentRunner::Fail(Group& group, Episode& episode, const absl::Status& status) {
  failing_ = true;
  const bool full = absl::IsResourceExhausted(status);
  const bool useless = absl::IsInvalidArgument(status);
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
  if (useless || episode.failures >= options_.max_failures) {
    ++counters_.given_up;
    const GroupKey key{group.spec.lane, group.spec.id};
    results_.push_back({key.first, key.second, episode.index,
                        StatusOf(status.code(), "agent ", options_.label, ", ", episode.failures,
                                 " failures, the last: ", Message(status))});
    return Remove(key, episode.index);
  }
  if (!full) ++counters_.restarted;
  episode.state = State::kDelayed;
  delayed_.emplace(clock_.Now() + BackoffDelay(episode.failures + episode.refusals,
                                               options_.retry_delay, options_.max_retry_delay),
                   episode.id);
}

void AgentRunner::Remove(const GroupKey& key, int32_t index) {
  const auto group = groups_.find(key);
  const auto episode = group->second.episodes.find(index);
  by_episode_.erase(episode->second.id);
  group->second.episodes.erase(episode);
  if (group->second.episodes.empty()) groups_.erase(group);
}

// Episodes take long, so an agent is silent only while it fails.
void AgentRunner::UpdateSilence() {
  absl::Time& since = counters_.silent_since;
  if (std::exchange(answered_, false)) failing_ = false;
  if (groups_.empty()) failing_ = false;
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
