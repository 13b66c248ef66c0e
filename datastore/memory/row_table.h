#ifndef FRESHET_DATASTORE_MEMORY_ROW_TABLE_H_
#define FRESHET_DATASTORE_MEMORY_ROW_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "datastore/memory/group_table.h"

namespace freshet {

// A task's hold on one sample. Kept when done, so that a repeated PutFields is recognised.
struct RowHold {
  Task task = Task::kScore;
  int64_t ordinal = 0;
  int32_t index = 0;
  std::string worker;
  absl::Time expires;
  bool done = false;
};

// Which rows wait for each task, and who holds the others. Confined to one thread at a time.
class RowTable {
 public:
  // The sample's inputs for the task are ready: it may be handed out (again).
  void Offer(Task task, Group& group, int32_t index);
  // Takes the oldest waiting row under `token`; nothing when none waits.
  std::optional<RowKey> Take(Task task, GroupTable& groups, int64_t token,
                             const std::string& worker, absl::Time expires);
  // Null for a token that is not live or done.
  RowHold* Find(int64_t token);
  void SetDone(Group& group, int64_t token);
  // The hold is gone (failed or expired); the row is not offered.
  void Release(Group& group, int64_t token);
  // Forgets all of the group's rows and holds: its attempt ended.
  void Remove(Group& group);
  // Tokens whose holds have expired, in order.
  std::vector<int64_t> Expired(absl::Time now) const;
  // Tokens of the worker's live holds, in order.
  std::vector<int64_t> HeldBy(const std::string& worker) const;
  // Earliest expiry of a live hold; infinite without one.
  absl::Time NextExpiry() const;

  int64_t pending(Task task) const {
    return static_cast<int64_t>(pending_[static_cast<size_t>(task)].size());
  }
  int64_t held(Task task) const { return held_[static_cast<size_t>(task)]; }

 private:
  std::set<RowKey> pending_[kNumTasks];
  std::map<int64_t, RowHold> holds_;  // by token, live and done
  std::set<int64_t> live_;            // tokens of live holds
  int64_t held_[kNumTasks] = {};
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_ROW_TABLE_H_
