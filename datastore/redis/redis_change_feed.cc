#include "datastore/redis/redis_change_feed.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"

namespace freshet {
namespace {

// Longest wait for a message; Wake() and messages end it early.
constexpr absl::Duration kListenSlice = absl::Seconds(60);
// Pause after errors for which the client does not back off.
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);

}  // namespace

RedisChangeFeed::RedisChangeFeed(std::shared_ptr<RedisClient> client, std::string prefix)
    : client_(std::move(client)), prefix_(std::move(prefix)) {}

RedisChangeFeed::~RedisChangeFeed() {
  std::jthread listener;
  {
    MutexLock lock(mu_);
    listener = std::move(listener_);
    listener.request_stop();
    if (subscription_ != nullptr) subscription_->Wake();
    stopped_.NotifyAll();
  }
}

void RedisChangeFeed::Merge(std::string_view counts) {
  while (!counts.empty()) {
    std::string_view part = TakePart(counts, ' ');
    int64_t topic = 0;
    int64_t count = 0;
    if (!TakeNumbers(part, ':', topic, count).ok() || topic < 0 || count < 0) return;
    if (topic >= kNumTopics) continue;
    counts_.RaiseTo(static_cast<Topic>(topic), static_cast<uint64_t>(count));
  }
}

void RedisChangeFeed::ListenTo(Topic topic) {
  const size_t index = static_cast<size_t>(topic);
  MutexLock lock(mu_);
  if (!wanted_.test(index)) {
    wanted_.set(index);
    if (subscription_ != nullptr) subscription_->Wake();
  }
  if (listener_.joinable()) return;
  listener_ = std::jthread([this](const std::stop_token& stop) { Listen(stop); });
}

RedisChangeFeed::TopicSet RedisChangeFeed::Wanted() {
  MutexLock lock(mu_);
  return wanted_;
}

void RedisChangeFeed::Listen(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const TopicSet topics = Wanted();
    std::vector<std::string> channels;
    for (size_t topic = 0; topic < topics.size(); ++topic) {
      if (topics.test(topic)) channels.push_back(StrCat(prefix_, "changed:", topic));
    }
    auto subscription = client_->Subscribe(channels);
    if (subscription.ok()) {
      {
        MutexLock lock(mu_);
        subscription_ = subscription->get();
      }
      Follow(stop, topics, **subscription);
      MutexLock lock(mu_);
      subscription_ = nullptr;
    }
    MutexLock lock(mu_);
    if (!stop.stop_requested() && wanted_ == topics) stopped_.WaitFor(mu_, kRetryPause);
  }
}

void RedisChangeFeed::Follow(const std::stop_token& stop, TopicSet topics,
                             RedisSubscription& subscription) {
  bool current = false;
  while (!stop.stop_requested() && Wanted() == topics) {
    // The counts include messages missed before the subscription or during an outage.
    if (!current) current = ReadCounts().ok();
    auto message = subscription.Next(current ? kListenSlice : kRetryPause);
    if (!message.ok()) {
      current = false;
      if (message.status().code() != absl::StatusCode::kUnavailable) {
        FRESHET_LOG(Warning) << "event=change_feed_failed prefix=" << prefix_
                             << " error=" << LogQuoted(Message(message.status()));
        return;
      }
    } else if (message->has_value()) {
      if ((*message)->channel.empty()) current = false;
      Merge((*message)->payload);
    } else {
      current = false;  // a silently dead subscription looks the same as an idle one
    }
  }
}

absl::Status RedisChangeFeed::ReadCounts() {
  const auto reply = client_->Command({"HGETALL", StrCat(prefix_, "changes")});
  if (!reply.ok()) return reply.status();
  std::string counts;
  for (size_t i = 0; i + 1 < reply->items.size(); i += 2) {
    counts +=
        StrCat(counts.empty() ? "" : " ", reply->items[i].text, ":", reply->items[i + 1].text);
  }
  Merge(counts);
  return absl::OkStatus();
}

}  // namespace freshet
