#ifndef FRESHET_DATASTORE_MEMORY_LEASE_REPLAY_H_
#define FRESHET_DATASTORE_MEMORY_LEASE_REPLAY_H_

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "datastore/trajectory_store.h"

namespace freshet {

// The newest kEntries replies of LeasePrompts by (worker, request id), for callers that lost a
// reply. Confined to one thread at a time.
class LeaseReplay {
 public:
  // Null if unknown. Valid until the next Remember.
  const LeaseReply* Find(const std::string& worker, const std::string& request_id) const {
    const auto it = replies_.find({worker, request_id});
    return it == replies_.end() ? nullptr : &it->second;
  }
  void Remember(const std::string& worker, const std::string& request_id, LeaseReply reply) {
    Key key{worker, request_id};
    if (!replies_.emplace(key, std::move(reply)).second) return;
    order_.push_back(std::move(key));
    if (order_.size() > kEntries) {
      replies_.erase(order_.front());
      order_.pop_front();
    }
  }

 private:
  using Key = std::pair<std::string, std::string>;
  // Far more than the requests in flight; a reply holds a few prompts.
  static constexpr size_t kEntries = 256;
  std::map<Key, LeaseReply> replies_;
  std::deque<Key> order_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_LEASE_REPLAY_H_
