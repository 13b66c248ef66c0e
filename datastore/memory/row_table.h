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

// A worker's hold on one sample. Kept when done, to recognize a repeated PutFields.
struct RowHold {
  int64_t ordinal = 0;
  int32_t index = 0;
  std::string worker;
  absl::Time expires;
  bool done = false;
};

// Pending rows and the holders of leased rows. Confined to one thread at a time.
class RowTable {
 public:
  // Makes the row available (again).
  void Offer(Group& group, int32_t index);
  // Leases the oldest pending row under `token`; nullopt if there is none.
  std::optional<RowKey> Take(GroupTable& groups, int64_t token, const std::string& worker,
                             absl::Time expires);
  // Null unless the token is live or done.
  RowHold* Find(int64_t token);
  void SetDone(Group& group, int64_t token);
  // Ends the hold (failed or expired) without offering the row.
  void Release(Group& group, int64_t token);
  // Removes all rows and holds of the group, because its attempt ended.
  void Remove(Group& group);
  // Tokens of expired holds, in order.
  std::vector<int64_t> Expired(absl::Time now) const;
  // Tokens of the worker's live holds, in order.
  std::vector<int64_t> HeldBy(const std::string& worker) const;
  // Earliest expiry of a live hold; infinite if there is none.
  absl::Time NextExpiry() const;

  int64_t pending() const { return static_cast<int64_t>(pending_.size()); }
  int64_t held() const { return static_cast<int64_t>(live_.size()); }

 private:
  std::set<RowKey> pending_;
  std::map<int64_t, RowHold> holds_;  // by token, live and done
  std::set<int64_t> live_;            // tokens of live holds
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_ROW_TABLE_H_
