#ifndef FRESHET_DATASTORE_MEMORY_GROUP_TABLE_H_
#define FRESHET_DATASTORE_MEMORY_GROUP_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Hand-out order of rows: oldest first, by (min version, ordinal, index).
using RowKey = std::tuple<int64_t, int64_t, int32_t>;

// The row of a finished sample: whether it waits for a reward worker, and which one holds it.
struct RowProgress {
  enum class Stage { kBlocked, kPending, kLeased, kDone };
  Stage stage = Stage::kBlocked;
  RowKey key;         // position among pending rows
  int64_t token = 0;  // of the lease, kept when done
  RowCounts counts;
};

struct SampleSlot {
  std::shared_ptr<const Response> response;  // null until finished
  int64_t token = 0;                         // of the lease under which it was put
  std::shared_ptr<const Score> score;
  std::string replay_of;  // uid of the success that replaced the sample; "": none did
  Response partial;       // tokens kept from an earlier lease
  RowProgress row;

  // The response, else the kept partial, else an empty response.
  const Response& Tokens() const { return response != nullptr ? *response : partial; }
};

struct Group {
  int64_t ordinal = 0;
  int32_t attempt = 0;
  std::shared_ptr<const Prompt> prompt;
  GroupState state = GroupState::kQueued;
  absl::Time since;         // time of entering `state`
  bool kept = false;        // requeued with finished samples or partials
  int64_t min_version = 0;  // undefined while queued without kept tokens
  int64_t max_version = 0;  // set once all samples are finished
  int64_t requeues = 0;     // because of age, by the disposition
  LeaseHistory leases;
  int64_t place = 0;  // in the queue: the ordinal or QueuePlace
  int64_t step = 0;   // that claimed or trained it
  // The live lease, while kLeased.
  int64_t token = 0;
  std::string worker;
  absl::Time expires;
  int64_t put_token = 0;                // of the last lease under which a sample was put
  std::vector<int64_t> attempt_tokens;  // all group leases of this attempt
  std::vector<SampleSlot> samples;      // of the attempt; G before its first lease
  int64_t max_new_tokens = 0;           // GroupLease::max_new_tokens of the attempt
  int64_t skipped = 0;                  // G minus `samples`, as counted for `state`

  int32_t size() const { return static_cast<int32_t>(samples.size()); }
  int32_t NumFinished() const;
  bool HasTokens() const;  // any finished sample or partial
  // The oldest engine version that may continue the group: its min version or, if higher, the
  // newest token of a partial (versions within a sample do not decrease).
  int64_t ContinueVersion() const;
  GroupAge Age() const;
};

// The remembered groups of a job, their states and derived indexes. References stay valid until
// Erase. Confined to one thread at a time (the store's lock).
class GroupTable {
 public:
  explicit GroupTable(int32_t group_size) : group_size_(group_size) {}

  Group& Add(Prompt prompt, absl::Time now);
  Group* Find(int64_t ordinal);
  Group& Get(int64_t ordinal);

  // Changes the state (and `kept`, for a requeue); counts and times the transition. The group's
  // samples must already be those of the new state. Aborts on an illegal transition.
  void Move(Group& group, GroupState to, absl::Time now, bool kept = false);
  // Removes the group. Counts stay.
  void Erase(int64_t ordinal);

  int64_t outstanding() const { return static_cast<int64_t>(outstanding_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t Count(GroupState state) const { return counts_[static_cast<size_t>(state)]; }

  const std::set<int64_t>& outstanding_ordinals() const { return outstanding_; }
  const std::set<int64_t>& running_ordinals() const { return running_; }
  const std::set<int64_t>& kept_ordinals() const { return kept_; }  // requeued with tokens
  // (place, ordinal), in lease order.
  const std::set<std::pair<int64_t, int64_t>>& queue() const { return queue_; }
  const std::map<int64_t, Group>& groups() const { return groups_; }

  // Adds counts, skipped samples and times of the states.
  void Describe(StoreStats& stats) const;

 private:
  void Index(const Group& group);
  void Unindex(const Group& group);

  const int32_t group_size_;
  std::map<int64_t, Group> groups_;
  std::set<std::pair<int64_t, int64_t>> queue_;
  std::set<int64_t> kept_;
  std::set<int64_t> outstanding_;
  std::set<int64_t> running_;
  int64_t counts_[kNumGroupStates] = {};
  int64_t skipped_[kNumGroupStates] = {};  // StoreStats::skipped
  int64_t transitions_[kNumGroupStates] = {};
  absl::Duration times_[kNumGroupStates] = {};
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_GROUP_TABLE_H_
