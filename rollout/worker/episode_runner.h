#ifndef FRESHET_ROLLOUT_WORKER_EPISODE_RUNNER_H_
#define FRESHET_ROLLOUT_WORKER_EPISODE_RUNNER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "datastore/trajectory.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/environment/environment_client.h"
#include "rollout/worker/episode_budget.h"
#include "rollout/worker/episode_conversation.h"
#include "rollout/worker/episode_table.h"
#include "rollout/worker/episodes.h"
#include "rollout/worker/invalid_turns.h"

namespace freshet {

// Conversion between tokens and text at the boundary of policy and environment. Only the
// environment's text is tokenized; sampled tokens are never retokenized.
struct EpisodeText {
  std::function<std::string(const std::vector<int32_t>&)> decode;
  std::function<absl::StatusOr<std::vector<int32_t>>(const std::string&)> encode;
  // Set if observations are messages: begins a conversation with the row's prompt.
  std::function<absl::StatusOr<EpisodeConversation>(const std::string& prompt)> converse = nullptr;
};

struct EpisodeOptions : EpisodeRetries, EpisodeLimits {
  std::string environment;  // its name on the worker; "": the worker's only environment
  std::string label;        // in messages; "": same as `environment`
  // Task of a row (kTaskField) -> its `environment`, if that is another one.
  std::map<std::string, std::string> environment_by_task;
  std::map<std::string, std::string> options;  // a row's field of the same name overrides it
  int32_t max_turn_tokens = 0;                 // tokens per turn; 0: bounded by max_new_tokens only
  int32_t max_conversations = 1;    // the episode is truncated when another one would begin
  bool mask_invalid_turns = false;  // turns that the environment calls invalid bear no loss
  double trace_ratio = 0;           // share of samples with lifecycle logging
};

// Plays episodes: generates a turn, sends its text to the environment, appends the answer as
// observation tokens (loss mask 0, log-prob 0, in the span of the preceding turn), and repeats
// until the environment ends the episode, one of EpisodeLimits is reached or the response is full.
// The response is the whole sequence; env_reward is the sum of the rewards. finish is kStop if the
// environment ended the episode and kLength if it was cut off. The environment's last observation,
// which no turn follows, is left out. Invalid turns may bear no loss (invalid_turns.h).
//
// If observations are messages, the chat template renders them, and every episode has a prompt of
// its own instead of the group's: the row's messages with those of the reset. The response begins
// with it, and max_new_tokens bounds both. An answer may begin a new context, whose messages
// replace the conversation: what was said so far is then a segment of the response, and
// max_new_tokens bounds each segment.
//
// All samples of a group get the same episode: its seed depends only on (seed, ordinal). A failed
// episode restarts with the same seed, on another worker if the client finds one. Each turn is a
// separate request whose partial is the response so far; the engine finds its keys and values in
// the prefix cache.
// Samples of a group that are ready together share a request and its prompt. Non-blocking: Advance
// does what is possible now. Used by the engine's thread only.
class EpisodeRunner final : public Episodes {
 public:
  // All must outlive the runner.
  EpisodeRunner(InferenceEngine& engine, EnvironmentClient& client, const Clock& clock,
                EpisodeText text, EpisodeOptions options);

  void Start(EpisodeGroup spec) override;
  void Cancel(Lane lane, int64_t id) override;
  // Processes the engine's outputs and the environments' answers, and submits ready turns.
  // INVALID_ARGUMENT of a result: bad options, an observation without tokens, a request that the
  // engine rejects.
  std::vector<EpisodeResult> Advance(std::vector<GenerationOutput> outputs) override;
  void Await(absl::Duration timeout) override { client_.Await(timeout); }
  bool waiting_for_engine() const override { return !ready_.empty(); }
  int64_t open() const override { return table_.size(); }
  const std::string& label() const override { return options_.label; }
  EpisodeCounters counters() const override;
  int64_t answers() const override { return answers_; }

 private:
  enum class State { kDelayed, kResetting, kReady, kGenerating, kStepping };
  struct Episode : EpisodeSlot {
    State state = State::kDelayed;
    std::optional<EpisodeConversation> conversation;
    std::vector<Response> segments;         // ended ones, each with its prompt
    std::vector<int32_t> prompt;            // of the conversation
    Response response;                      // after the prompt
    std::string action;                     // of the latest turn
    int32_t turn_begin = 0;                 // of the latest turn in `response`
    std::vector<TokenRange> invalid_turns;  // in `response`
    double reward = 0;
    double cost = 0;
    int64_t tokens = 0;                    // generated
    std::vector<StepReward> step_rewards;  // ends in `response`
    int32_t turns = 0;
    absl::Time began;
    int64_t request = 0;  // while kGenerating
  };
  using Table = EpisodeTable<Episode>;
  using Group = Table::Group;
  using GroupKey = Table::Key;

  void Open(Group& group, Episode& episode);
  void OpenDelayed();
  void TakeOutput(GenerationOutput output);
  void RequestFailed(int64_t request, const absl::Status& why);
  void TakeEvent(EpisodeEvent event);
  void TakeAnswer(Group& group, Episode& episode, const EpisodeAnswer& answer);
  absl::StatusOr<std::vector<int32_t>> Encode(const Group& group, Episode& episode,
                                              const EpisodeAnswer& answer) const;
  absl::Status AppendObservation(const Group& group, Episode& episode, const EpisodeAnswer& answer);
  absl::Status EncodeError(const EpisodeAnswer& answer, const absl::Status& why) const;
  void BeginContext(Group& group, Episode& episode, const EpisodeAnswer& answer);
  void Fail(Group& group, Episode& episode, const absl::Status& status);
  // `limit`: what truncates the episode; absent: it has terminated.
  void Finish(Group& group, Episode& episode, std::optional<EpisodeLimit> limit);
  void GiveUp(Group& group, Episode& episode, absl::Status status,
              EpisodeFailure failure = EpisodeFailure::kEnvironment);
  void Remove(Group& group, const Episode& episode);
  void MakeReady(const Group& group, Episode& episode);
  const std::vector<int32_t>& PromptOf(const Group& group, const Episode& episode) const;
  int32_t MostTokens(const Group& group, const Episode& episode) const;
  int32_t TurnLimit(const Group& group, const Episode& episode) const;
  void SubmitReady();
  bool SubmitGroup(Group& group);
  absl::Status SubmitTurns(Group& group, const std::vector<Episode*>& turns, int32_t limit);
  int64_t WaitingForEngine() const;
  int64_t WaitingForEnvironment() const;
  void UpdateSilence();

  InferenceEngine& engine_;
  EnvironmentClient& client_;
  const Clock& clock_;
  const EpisodeText text_;
  const EpisodeOptions options_;

  Table table_;
  struct Request {
    GroupKey group;
    int64_t open = 0;  // samples still to be returned
  };
  std::map<int64_t, Request> by_request_;
  std::list<GroupKey> ready_;  // groups with turns to submit, longest waiting first
  int64_t last_request_ = 0;
  std::vector<EpisodeResult> results_;
  EpisodeCounters counters_;
  int64_t answers_ = 0;
  bool answered_ = false;  // an environment has answered in this Advance
  bool failing_ = false;   // the latest event was a failure
  absl::Time failed_at_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_EPISODE_RUNNER_H_
