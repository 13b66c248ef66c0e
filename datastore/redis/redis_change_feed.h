#ifndef FRESHET_DATASTORE_REDIS_REDIS_CHANGE_FEED_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CHANGE_FEED_H_

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/change_counts.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_subscription.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// This process's view of the job store's change counts, from replies to its own operations and from
// messages that other members' scripts publish. From the first Count or Await on, one thread
// subscribes to the requested topics only, so that a rollout does not wake for every scored row.
// After each (re)subscription it rereads all counts, so no change is missed. Thread-safe.
class RedisChangeFeed {
 public:
  // `prefix`: "{job}:".
  RedisChangeFeed(std::shared_ptr<RedisClient> client, std::string prefix);
  ~RedisChangeFeed();
  RedisChangeFeed(const RedisChangeFeed&) = delete;
  RedisChangeFeed& operator=(const RedisChangeFeed&) = delete;

  // Merges a script's "TOPIC:COUNT TOPIC:COUNT ..."; ignores malformed parts.
  void Merge(std::string_view counts);

  // As in TrajectoryStore.
  uint64_t Count(Topic topic) {
    ListenTo(topic);
    return counts_.Count(topic);
  }
  uint64_t Await(Topic topic, uint64_t seen, absl::Duration timeout) {
    ListenTo(topic);
    return counts_.Await(topic, seen, timeout);
  }
  void Close() { counts_.Close(); }

 private:
  using TopicSet = std::bitset<kNumTopics>;

  void ListenTo(Topic topic) ABSL_LOCKS_EXCLUDED(mu_);
  void Listen(const std::stop_token& stop) ABSL_LOCKS_EXCLUDED(mu_);
  // Reads messages of one subscription until it fails permanently, more topics are requested, or
  // `stop`.
  void Follow(const std::stop_token& stop, TopicSet topics, RedisSubscription& subscription)
      ABSL_LOCKS_EXCLUDED(mu_);
  TopicSet Wanted() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReadCounts();

  const std::shared_ptr<RedisClient> client_;
  const std::string prefix_;
  ChangeCounts counts_;
  Mutex mu_;
  TopicSet wanted_ ABSL_GUARDED_BY(mu_);
  RedisSubscription* subscription_ ABSL_GUARDED_BY(mu_) = nullptr;
  CondVar stopped_;
  std::jthread listener_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CHANGE_FEED_H_
