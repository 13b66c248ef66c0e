#include "local/local_environments.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet {

void LocalEnvironments::Reset(int64_t episode, const EpisodeStart& start) {
  const auto [entry, is_new] = open_.try_emplace(episode, environments_);
  Answer(episode, entry->second.Reset(start.environment, start.seed, start.options));
}

void LocalEnvironments::Step(int64_t episode, std::string action) {
  const auto found = open_.find(episode);
  if (found == open_.end()) {
    Answer(episode, FailedPrecondition("episode ", episode, " is not open"));
    return;
  }
  Answer(episode, found->second.Step(action));
}

void LocalEnvironments::Close(int64_t episode) {
  open_.erase(episode);
  std::erase_if(events_, [episode](const EpisodeEvent& event) { return event.episode == episode; });
}

std::vector<EpisodeEvent> LocalEnvironments::Poll() { return std::exchange(events_, {}); }

void LocalEnvironments::Await(absl::Duration /*timeout*/) {}

void LocalEnvironments::Answer(int64_t episode, absl::StatusOr<EnvironmentReply> reply) {
  if (!reply.ok()) {
    open_.erase(episode);
    events_.push_back({episode, reply.status()});
    return;
  }
  EpisodeAnswer answer{std::move(reply->observation), reply->reward, reply->terminated,
                       reply->truncated};
  answer.invalid = reply->invalid;
  events_.push_back({episode, std::move(answer)});
}

}  // namespace freshet
