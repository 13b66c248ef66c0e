#ifndef FRESHET_TESTS_ROLLOUT_WORKER_FAKE_ENVIRONMENT_CLIENT_H_
#define FRESHET_TESTS_ROLLOUT_WORKER_FAKE_ENVIRONMENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rollout/environment/environment_client.h"

namespace freshet {

// Scripted environments. Confined to one thread.
class FakeEnvironmentClient final : public EnvironmentClient {
 public:
  struct Call {
    int64_t episode = 0;
    int turn = 0;  // 0: the reset
    std::string action;
  };
  using Answer = absl::StatusOr<EpisodeAnswer>;

  // Returns the answer to a call.
  std::function<Answer(const Call&)> answer = [](const Call&) { return EpisodeAnswer{}; };
  bool held = false;  // Poll returns nothing

  std::vector<EpisodeStart> starts;
  std::vector<Call> calls;
  std::vector<int64_t> closed;
  int waits = 0;

  void Reset(int64_t episode, const EpisodeStart& start) override {
    starts.push_back(start);
    turns_[episode] = 0;
    Take({episode, 0, ""});
  }
  void Step(int64_t episode, std::string action) override {
    Take({episode, ++turns_[episode], std::move(action)});
  }
  void Close(int64_t episode) override {
    closed.push_back(episode);
    turns_.erase(episode);
    std::erase_if(events_, [&](const EpisodeEvent& event) { return event.episode == episode; });
  }
  std::vector<EpisodeEvent> Poll() override {
    if (held) return {};
    return std::exchange(events_, {});
  }
  void Await(absl::Duration) override { ++waits; }

  size_t open() const { return turns_.size(); }

 private:
  void Take(Call call) {
    calls.push_back(call);
    Answer given = answer(call);
    if (!given.ok()) turns_.erase(call.episode);
    events_.push_back({call.episode, std::move(given)});
  }

  std::map<int64_t, int> turns_;
  std::vector<EpisodeEvent> events_;
};

// Token ids are bytes.
inline std::string DecodeBytes(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += static_cast<char>(id);
  return text;
}
inline absl::StatusOr<std::vector<int32_t>> EncodeBytes(const std::string& text) {
  return std::vector<int32_t>(text.begin(), text.end());
}

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_WORKER_FAKE_ENVIRONMENT_CLIENT_H_
