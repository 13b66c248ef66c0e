#ifndef FRESHET_DATASTORE_STALENESS_POLICY_H_
#define FRESHET_DATASTORE_STALENESS_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

// Staleness policy: which engine may start another group, which groups a training step takes, and
// what happens to groups that became too old. All TrajectoryStore backends use these functions, or
// a server-side script that is tested against them.
//
// Symbols. V: committed training steps. v_e: the version that an engine stamps on its next token.
// eta: the bound. B: groups per step. min(g): the oldest version among the loss-bearing tokens of
// group g or, while g is being generated, the v_e of its lease. A step that starts from V may train
// on g iff V - min(g) <= eta. A group is *outstanding* from its lease until it is trained or ends,
// including while it waits in the queue with kept tokens.
//
// Derivation of the `wait` rule. Nothing is dropped if every outstanding group can be trained in
// time. By the step that starts from V + j, groups with min <= V + j - eta must be gone, and steps
// V .. V + j take (j + 1) * B groups. So it suffices to keep, for every j in 0..eta,
//
//     I(V):  #{g outstanding : min(g) <= V - eta + j}  <=  (j + 1) * B.
//
// * Admission keeps I. A group leased at v_e counts for every j >= v_e - (V - eta). The tightest of
//   these bounds is (eta + 1 - (V - v_e)) * B, and the number of all outstanding groups is at least
//   the number of old ones. Hence: admit iff outstanding < (eta + 1 - (V - v_e)) * B.
// * A step keeps I iff, for every k in 0..eta, at most k * B of the groups that it leaves have
//   min <= V - eta + k: this is I(V + 1) with j = k - 1, called the k * B condition.
// * No deadlock: given I(V), once the B oldest outstanding groups are complete, taking them leaves
//   at most (k + 1) * B - B = k * B. So the step waits only for groups among the oldest, which are
//   running. Taking the oldest complete groups first is optimal for every k.
// * After its lease a group's min only rises, and ends (filtered, dead) only remove groups. Both
//   lower the counts in I.
//
// Simpler rules and how they fail:
// * `accepted + running < (eta + V + 1) * B` with first-come batches (AReaL, arXiv:2505.24298, and
//   its descendants) counts groups but not their age: younger groups overtake a straggler until it
//   is too old. It compares with V although an engine may still hold V - 1, so at eta = 0 a group
//   can be too old when its first token is sampled. A slot freed by an expired lease is granted
//   again under a larger V, while the group's kept samples stay old.
// * The same gate with oldest-first batches still trains young groups when old ones are incomplete.
// * Always waiting for the oldest group lets one straggler stop the job although the bound allows
//   eta more steps. Waiting only for groups at their last chance (k = 0) fails later: more than B
//   groups can reach their last chance in the same step.
//
// All functions are pure (no clock, I/O or locks) and thread-safe.

enum class Disposition {
  kWait,     // the trainer waits for groups that would become too old; nothing is dropped
  kDrop,     // groups that became too old are dropped at commit
  kRequeue,  // groups that became too old restart from their prompt
  kMask,     // tokens that became too old are excluded from the loss
};
const char* Name(Disposition disposition);
// Inverse of Name. INVALID_ARGUMENT: unknown name; the message lists the valid ones.
absl::StatusOr<Disposition> ParseDisposition(std::string_view name);

struct StalenessOptions {
  using Disposition = freshet::Disposition;
  int64_t max = 0;  // eta, in versions
  Disposition disposition = Disposition::kWait;
  int64_t groups_per_step = 1;  // B
  int64_t max_in_flight = 1;    // maximum number of groups leased to engines

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  absl::Status Validate() const;
};

struct AdmissionState {
  PolicyVersion committed;  // (lineage, V)
  PolicyVersion engine;     // (lineage, v_e)
  int64_t outstanding = 0;  // groups, including requeued ones with kept tokens
  int64_t running = 0;      // groups under a live lease
  int64_t last_step = 0;    // the job ends when V reaches this
  // Set for a requeued group with kept tokens, which already counts as outstanding. Only an engine
  // at this version or newer may continue it: the group's min version or, if higher, the newest
  // token of a partial generation.
  std::optional<int64_t> kept_version;
};

// `reason` is always set.
struct AdmissionDecision {
  bool admit = false;
  std::string reason;
};

// Decides whether to lease one more group to an engine. A new group is admitted iff
//   the engine's lineage is the committed one, v_e <= V,
//   running < max_in_flight,
//   outstanding < (eta + 1 - (V - v_e)) * B, and
//   V * B + outstanding < last_step * B.
// For a requeued group with kept tokens, V - v_e <= eta and v_e >= kept_version replace the last
// two.
AdmissionDecision DecideAdmission(const StalenessOptions& options, const AdmissionState& state);

// An outstanding, unclaimed group as input of the consumption rule.
struct GroupAge {
  int64_t ordinal = 0;
  int64_t min_version = 0;
  int64_t max_version = 0;  // newest loss-bearing token; only valid if ready
  bool ready = false;       // complete, may be claimed
};

struct ConsumptionDecision {
  bool claim = false;
  std::vector<int64_t> ordinals;     // if `claim`: exactly B, sorted
  std::optional<int64_t> waits_for;  // ordinal of the oldest group that blocks the step
  std::string reason;                // always set; names the group waited for
};

// Selects the groups for the step that starts from `version`: the oldest ready ones by (min
// version, ordinal), each checked again against the bound (under kMask: at least one token within
// the bound). Under kWait, claims only if for every k in 0..eta at most k * B of the remaining
// groups have min version <= V - eta + k. O(n log n) in the number of groups.
ConsumptionDecision DecideConsumption(const StalenessOptions& options, int64_t version,
                                      const std::vector<GroupAge>& outstanding);

enum class Verdict { kKeep, kDrop, kRequeue, kDead };
struct DispositionDecision {
  Verdict verdict = Verdict::kKeep;
  std::string reason;  // short fixed label; set unless kKeep
};

// Decides about an unclaimed outstanding group once `version` is committed:
//   kWait: always kept.
//   kDrop, kRequeue: if version - min > eta, dropped (too_old) or requeued (too_old); dead
//     (too_slow) after `max_requeues` requeues.
//   kMask: a ready group without a token within the bound is dropped (fully_masked).
DispositionDecision DecideDisposition(const StalenessOptions& options, int64_t version,
                                      const GroupAge& group, int64_t requeues,
                                      int64_t max_requeues);

// How a group's lease can end while samples are missing.
enum class LeaseEnd {
  kReturned,    // the holder stops or has no room; says nothing about the prompt
  kHandedBack,  // nothing was tried because the environment did not answer
  kFailed,      // the engine or environment failed on the prompt
  kExpired,     // not renewed in time
  kWorkerLost,  // the holder was revoked
};
// Ledger labels: returned, handed_back, lease_failed, lease_expired, worker_lost.
const char* Name(LeaseEnd end);

// Lease ends of a group, over all its attempts.
struct LeaseHistory {
  int64_t failures = 0;    // leases that ended in kFailed
  int64_t losses = 0;      // consecutive worker losses while this group was held
  int64_t last_loss = 0;   // sequence number of the newest such loss
  int64_t hand_backs = 0;  // counted hand-backs and losses since the last sample was put
  absl::Time counted_at;   // when hand_backs last increased
};

struct LeaseLimits {
  int64_t max_failures = 1;
  int64_t max_hand_backs = 1;
  absl::Duration lease_ttl;
};

struct LeaseEndDecision {
  LeaseHistory history;  // includes this end
  // Set if the group is dead: kFailed after `count` failures and losses, or kHandedBack after
  // `count` hand-backs. Otherwise the group returns to the queue.
  std::optional<LeaseEnd> dead;
  int64_t count = 0;
  bool behind = false;  // loses its place in the queue (QueuePlace)
};

// Decides about a group whose lease ends at `now`. `delivered`: a sample was put under the lease.
// `loss`: for kExpired and kWorkerLost, the 1-based sequence number among the job's worker losses;
// all leases that one worker loses belong to one loss.
//
// * Delivering a sample resets losses and hand-backs: the prompt works.
// * kFailed counts as a failure.
// * A prompt that crashes its engine looks like an unrelated engine crash. But it is held at every
//   loss of the job, while any other prompt soon delivers a sample or is not held at a loss. So
//   only consecutive losses add up. The group is dead when failures plus losses reach max_failures.
// * kHandedBack, and a loss for any reason, counts towards max_hand_backs at most once per lease
//   TTL. So a group that never delivers a sample ends eventually, but survives a short outage of
//   its environment, during which it is tried often.
// * A group keeps its place in the queue at the first counted hand-back, so that a short
//   environment outage does not change batches at eta = 0. From the second on it loses its place,
//   so that a prompt that always fails does not block a step.
LeaseEndDecision DecideLeaseEnd(LeaseEnd end, bool delivered, int64_t loss, absl::Time now,
                                const LeaseHistory& history, const LeaseLimits& limits);

// New queue place of a group that lost its place. Leases go by (place, ordinal), and a group's
// place is normally its ordinal. The new place is after all waiting prompts. Half of the groups,
// chosen by a bit of the ordinal that changes with each hand-back, go `max_in_flight` places
// further back; this separates prompts that are handed back together because of one of them.
int64_t QueuePlace(int64_t high_water, int64_t ordinal, int64_t hand_backs, int64_t max_in_flight);

// How a row's lease can end without a value.
enum class RowEnd {
  kFailed,      // the row could not be processed
  kReturned,    // the scorer is unavailable or the holder has no room
  kExpired,     // not renewed in time
  kWorkerLost,  // the holder was revoked
};

// Lease ends of a row, for one task.
struct RowCounts {
  int32_t failures = 0;
  int32_t losses = 0;  // consecutive leases that ended in the loss of their worker
};
struct RowEndDecision {
  RowCounts counts;   // includes this end
  bool dead = false;  // the group is dead
};

// Decides about a row whose lease ends: after `max_failures` failures its group is dead, otherwise
// the row is offered again. kReturned and kExpired say nothing about the row and do not count.
// kWorkerLost may mean that the row crashes workers, or that workers are being replaced: the first
// `max_failures` consecutive losses do not count, and each further one is a failure. kFailed and
// kReturned show that the worker survived the row, so they reset the losses. Hence at most 2 *
// max_failures consecutive workers are lost to one row.
RowEndDecision DecideRowEnd(RowEnd end, RowCounts counts, int64_t max_failures);

// The loss-bearing part of a response in a step that starts from a given version.
struct LossWindow {
  std::vector<uint8_t> loss_mask;  // one entry per response token
  int64_t loss_tokens = 0;
  int64_t masked_tokens = 0;  // loss-bearing tokens excluded because of their age
  // Over loss-bearing tokens. If there are none, both are the version at the start of the step:
  // such a sample has no staleness.
  int64_t min_version = 0;
  int64_t max_version = 0;
};
// Under kMask, excludes tokens sampled before version - eta; otherwise uses the response's own
// mask. `response` must be aligned (CheckResponse).
LossWindow ComputeLossWindow(const StalenessOptions& options, int64_t version,
                             const Response& response);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_STALENESS_POLICY_H_
