#ifndef FRESHET_ROLLOUT_WORKER_AGENT_RUNNER_H_
#define FRESHET_ROLLOUT_WORKER_AGENT_RUNNER_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "rollout/environment/agent_client.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/sessions/session_registry.h"
#include "rollout/worker/episode_table.h"
#include "rollout/worker/episodes.h"

namespace freshet {

struct AgentOptions : EpisodeRetries {
  std::string label;                           // in messages
  std::string base_url;                        // of the endpoint that serves the sessions
  std::string model;                           // its name there
  std::map<std::string, std::string> options;  // for the agent
  bool chat = false;                           // rows are conversations; see AgentTask
  absl::Duration timeout = absl::Minutes(10);  // of an episode
  int64_t max_concurrent = 64;                 // episodes that the agent plays at a time
  int32_t max_conversations = 1;               // of an episode; see SessionOptions
  int64_t max_episode_tokens = std::numeric_limits<int64_t>::max();  // generated in an episode
};

// Plays episodes with an agent that generates through OpenAI's API: opens a session, calls the
// agent with the session's key, and takes what the session recorded once the agent has answered
// with the reward. The response is the whole sequence, beginning with the agent's first prompt;
// several conversations are its segments.
// finish is kLength if the agent says so or the session has reached a limit, otherwise kStop. If no
// request was answered, the episode has failed, unless the agent says that requests are optional:
// then finish is kNotAsked.
//
// A failed call restarts with a new session. Requests of sessions reach the engine through the
// queue, which takes its outputs: Advance ignores them.
class AgentRunner final : public Episodes {
 public:
  // All must outlive the runner.
  AgentRunner(GenerationQueue& queue, SessionRegistry& sessions, AgentClient& client,
              const Clock& clock, AgentOptions options);

  void Start(EpisodeGroup spec) override;
  void Cancel(Lane lane, int64_t id) override;
  std::vector<EpisodeResult> Advance(std::vector<GenerationOutput> outputs) override;
  void Await(absl::Duration timeout) override { queue_.Await(timeout); }
  bool waiting_for_engine() const override { return queue_.stats().waiting > 0; }
  int64_t open() const override { return table_.size(); }
  int64_t most_open() const override { return options_.max_concurrent; }
  const std::string& label() const override { return options_.label; }
  EpisodeCounters counters() const override;
  int64_t answers() const override { return answers_; }

 private:
  enum class State { kWaiting, kDelayed, kPlaying };
  struct Episode : EpisodeSlot {
    State state = State::kWaiting;
    std::string key;  // of the session while kPlaying
  };
  using Table = EpisodeTable<Episode>;
  using Group = Table::Group;

  // Queues an episode for the agent, under a new id.
  void Enqueue(Group& group, Episode& episode);
  void EnqueueDelayed();
  void PlayWaiting();
  void Play(Group& group, Episode& episode);
  void TakeEvent(const AgentEvent& event);
  void Finish(Group& group, Episode& episode, const AgentReward& reward);
  // The episode is not kPlaying.
  void Fail(Group& group, Episode& episode, const absl::Status& status,
            EpisodeFailure failure = EpisodeFailure::kEnvironment);
  SessionRecord EndSession(Episode& episode);
  void UpdateSilence();

  GenerationQueue& queue_;
  SessionRegistry& sessions_;
  AgentClient& client_;
  const Clock& clock_;
  const AgentOptions options_;

  Table table_;
  std::deque<int64_t> waiting_;  // episodes for which the agent has no place
  int64_t playing_ = 0;
  std::vector<EpisodeResult> results_;
  EpisodeCounters counters_;
  int64_t answers_ = 0;
  bool answered_ = false;  // the agent has answered in this Advance
  bool failing_ = false;   // the latest event was a failure
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_AGENT_RUNNER_H_
