#ifndef FRESHET_ROLLOUT_WORKER_EPISODE_TABLE_H_
#define FRESHET_ROLLOUT_WORKER_EPISODE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "rollout/worker/episodes.h"

namespace freshet {

// What every open episode has.
struct EpisodeSlot {
  int64_t id = 0;  // for the client; new after every restart
  int32_t index = 0;
  std::string uid;
  int32_t failures = 0;
  int32_t refusals = 0;  // since the latest failure
};

// When an episode that has failed is tried again.
struct EpisodeRetries {
  int32_t max_failures = 3;  // an episode that failed this often is given up
  // Tries while its agent or all workers are full, before that counts as a failure.
  int32_t max_refusals = 100;
  absl::Duration retry_delay = absl::Milliseconds(50);  // doubles with each retry of an episode
  absl::Duration max_retry_delay = absl::Seconds(2);
};

// Counts and logs a failed try of an episode of `spec`. Returns whether it may be tried again.
bool CountFailure(const EpisodeGroup& spec, const absl::Status& why, const EpisodeRetries& retries,
                  EpisodeSlot& episode, EpisodeCounters& counters);

// The open episodes by group and by id, and when the failed ones are due. `Episode` is derived from
// EpisodeSlot. Groups and episodes stay where they are until they are removed.
template <typename Episode>
class EpisodeTable {
 public:
  using Key = std::pair<Lane, int64_t>;
  struct Group {
    EpisodeGroup spec;
    std::map<int32_t, Episode> episodes;  // by index
    Key key() const { return {spec.lane, spec.id}; }
  };
  struct Place {
    Group* group = nullptr;  // null: no such episode
    Episode* episode = nullptr;
  };

  EpisodeTable() = default;
  EpisodeTable(const EpisodeTable&) = delete;
  EpisodeTable& operator=(const EpisodeTable&) = delete;

  bool empty() const { return groups_.empty(); }
  // Number of episodes with an id.
  int64_t size() const { return static_cast<int64_t>(places_.size()); }

  // Adds a group, which is not in the table. Its episodes have no id yet.
  Group& Add(EpisodeGroup spec) {
    Group& group = groups_[{spec.lane, spec.id}];
    group.spec = std::move(spec);
    for (size_t i = 0; i < group.spec.sample_indices.size(); ++i) {
      const int32_t index = group.spec.sample_indices[i];
      Episode& episode = group.episodes[index];
      episode.index = index;
      if (i < group.spec.uids.size()) episode.uid = group.spec.uids[i];
    }
    return group;
  }
  // Replaces the id of an episode.
  void SetNewId(Group& group, Episode& episode) {
    places_.erase(episode.id);
    episode.id = ++last_id_;
    places_[episode.id] = {&group, &episode};
  }

  // Null: no such group.
  Group* FindGroup(const Key& key) {
    const auto found = groups_.find(key);
    return found == groups_.end() ? nullptr : &found->second;
  }
  const Group* FindGroup(const Key& key) const {
    const auto found = groups_.find(key);
    return found == groups_.end() ? nullptr : &found->second;
  }
  Place Find(int64_t id) const {
    const auto found = places_.find(id);
    return found == places_.end() ? Place() : found->second;
  }

  // After a failed try: sets a time for the next one. False: there is none.
  bool Retry(const Group& group, Episode& episode, const absl::Status& why,
             const EpisodeRetries& retries, absl::Time now, EpisodeCounters& counters) {
    if (!CountFailure(group.spec, why, retries, episode, counters)) return false;
    delayed_.emplace(now + BackoffDelay(episode.failures + episode.refusals, retries.retry_delay,
                                        retries.max_retry_delay),
                     episode.id);
    return true;
  }
  // The next episode whose time has come.
  Place TakeDue(absl::Time now) {
    while (!delayed_.empty() && delayed_.begin()->first <= now) {
      const Place place = Find(delayed_.begin()->second);
      delayed_.erase(delayed_.begin());
      if (place.group != nullptr) return place;
    }
    return {};
  }

  void RemoveGroup(const Key& key) {
    const auto found = groups_.find(key);
    if (found == groups_.end()) return;
    for (const auto& [index, episode] : found->second.episodes) places_.erase(episode.id);
    groups_.erase(found);
  }
  // Removes an episode, and its group with the last one.
  void Remove(Group& group, const Episode& episode) {
    const int32_t index = episode.index;
    places_.erase(episode.id);
    group.episodes.erase(index);
    if (group.episodes.empty()) groups_.erase(group.key());
  }

 private:
  std::map<Key, Group> groups_;
  std::map<int64_t, Place> places_;             // by id
  std::multimap<absl::Time, int64_t> delayed_;  // ids
  int64_t last_id_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_EPISODE_TABLE_H_
