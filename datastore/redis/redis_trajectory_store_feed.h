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

// The change counts of a job's store, as this process knows them: from the replies to its own
// operations, and from what other members' scripts publish. One thread listens, from the first
// Count or Await on, to the topics that were asked for: a rollout is not woken for every row that
// is scored. Whenever it subscribes, and after a cut connection, it reads all counts again, so no
// change is missed. Thread-safe.
class RedisChangeFeed {
 public:
  // `prefix` is the job's, as in "{job}:".
  RedisChangeFeed(std::shared_ptr<RedisClient> client, std::string prefix);
  ~RedisChangeFeed();
  RedisChangeFeed(const RedisChangeFeed&) = delete;
  RedisChangeFeed& operator=(const RedisChangeFeed&) = delete;

  // Takes "TOPIC:COUNT TOPIC:COUNT ..." of a script; ill-formed parts are ignored.
  void Merge(std::string_view counts) ABSL_LOCKS_EXCLUDED(mu_);

  // As in TrajectoryStore.
  uint64_t Count(Topic topic) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t Await(Topic topic, uint64_t seen, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using TopicSet = std::bitset<kNumTopics>;

  void ListenTo(Topic topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Listen(const std::stop_token& stop) ABSL_LOCKS_EXCLUDED(mu_);
  // Messages of one subscription, until it fails for good, further topics are wanted, or `stop`.
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
