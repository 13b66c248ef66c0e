#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_FEED_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_FEED_H_

#include <array>
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
  void Merge(std::string_view counts) ABSL_LOCKS_EXCLUDED(mu_);

  // As in TrajectoryStore.
  uint64_t Count(Topic topic) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t Await(Topic topic, uint64_t seen, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using TopicSet = std::bitset<kNumTopics>;

  void ListenTo(Topic topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Listen(const std::stop_token& stop) ABSL_LOCKS_EXCLUDED(mu_);
  // Reads messages of one subscription until it fails permanently, more topics are requested, or
  // `stop`.
  void Follow(const std::stop_token& stop, TopicSet topics, RedisSubscription& subscription)
      ABSL_LOCKS_EXCLUDED(mu_);
  TopicSet Wanted() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReadCounts();
  void Raise(size_t topic, uint64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<RedisClient> client_;
  const std::string prefix_;
  Mutex mu_;
  std::array<uint64_t, kNumTopics> counts_ ABSL_GUARDED_BY(mu_) = {};
  TopicSet wanted_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  RedisSubscription* subscription_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::array<CondVar, kNumTopics> changed_;
  CondVar stopped_;
  std::jthread listener_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_FEED_H_
