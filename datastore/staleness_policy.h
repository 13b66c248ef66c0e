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

// The staleness policy: which engine may start one more group, which groups a training step takes,
// and what becomes of groups that got too old. Every backend of TrajectoryStore decides by these
// functions (or by a server-side script that is tested against them).
//
// Symbols. V: committed training steps. v_e: the version that an engine stamps on its next token.
// eta: the bound. B: groups per step. min(g): the oldest version among the loss-bearing tokens of
// group g; while g is being generated, the v_e of its lease. A step that starts from V may train on
// g iff V - min(g) <= eta. A group is *outstanding* from its lease until it is trained or ends, and
// while it waits in the queue with kept tokens.
//
// The rule of `wait`, derived. Nothing is ever dropped if every outstanding group can be trained in
// time. By the step that starts from V + j, groups with min <= V + j - eta must be gone, and steps
// V .. V + j take (j + 1) * B groups. So it suffices to keep, for every j in 0..eta,
//
//     I(V):  #{g outstanding : min(g) <= V - eta + j}  <=  (j + 1) * B.
//
// * Admission keeps I. A group leased at v_e counts for every j >= v_e - (V - eta); the tightest of
//   these bounds is (eta + 1 - (V - v_e)) * B, and all outstanding groups together are at least as
//   many as the old ones. Hence: admit iff outstanding < (eta + 1 - (V - v_e)) * B.
// * A step keeps I iff, of the groups that it leaves, at most k * B have min <= V - eta + k, for
//   every k in 0..eta: that is I(V + 1) with j = k - 1. This is the k * B condition.
// * No deadlock: given I(V), once the B oldest outstanding groups are complete, taking them leaves
//   at most (k + 1) * B - B = k * B. So the step waits only for groups that are among the oldest,
//   and those run. Taking the oldest complete groups first is the best choice for every k at once.
// * A group's min only rises after its lease, and ends (filtered, dead) only remove groups: both
//   lower the counts in I.
//
// Simpler rules, and how they fail:
// * `accepted + running < (eta + V + 1) * B` with first-come batches (AReaL, arXiv:2505.24298, and
//   its descendants) counts groups but not their age: a straggler is overtaken by younger groups
//   until it is too old. It compares with V although an engine may still hold V - 1, so that at
//   eta = 0 a group can be too old when its first token is sampled. A slot freed by an expired
//   lease is granted again under a larger V, while the kept samples of the group stay old.
// * The same gate with oldest-first batches still trains the young ones when the old ones are not
//   complete.
// * Waiting for the oldest group always, without counting, lets one straggler stop the job although
//   the bound would allow eta more steps; waiting only for groups at their last chance (k = 0)
//   breaks later: more than B groups can reach their last chance in the same step.
//
// All functions are pure: no clock, no I/O, no locks. Thread-safe.

enum class Disposition {
  kWait,     // the trainer waits for groups that would otherwise get too old; nothing is dropped
  kDrop,     // groups that got too old are dropped at commit
  kRequeue,  // groups that got too old start again from their prompt
  kMask,     // tokens that got too old leave the loss
};
const char* Name(Disposition disposition);
// Inverse of Name. INVALID_ARGUMENT lists the names.
absl::StatusOr<Disposition> ParseDisposition(std::string_view name);

struct StalenessOptions {
  using Disposition = freshet::Disposition;
  int64_t max = 0;  // eta, in versions
  Disposition disposition = Disposition::kWait;
  int64_t groups_per_step = 1;  // B
  int64_t max_in_flight = 1;    // groups leased to engines at one time

  // INVALID_ARGUMENT naming the option, its value and its bound.
  absl::Status Validate() const;
};

struct AdmissionState {
  PolicyVersion committed;  // (lineage, V)
  PolicyVersion engine;     // (lineage, v_e)
  int64_t outstanding = 0;  // groups, the requeued ones with kept tokens included
  int64_t running = 0;      // groups under a live lease
  int64_t last_step = 0;    // the job ends when V reaches it
  // Set for a requeued group with kept tokens: it holds its slot of `outstanding` already, and
  // continues only on an engine that is not older than this: its min version, or the newest token
  // of a partial generation where that is higher.
  std::optional<int64_t> kept_version;
};

// `reason` is set whether or not the group is admitted.
struct AdmissionDecision {
  bool admit = false;
  std::string reason;
};

// May one more group be leased to this engine? For a new group: iff
//   the engine's lineage is the committed one, v_e <= V,
//   running < max_in_flight,
//   outstanding < (eta + 1 - (V - v_e)) * B, and
//   V * B + outstanding < last_step * B.
// For a requeued group with kept tokens the last two give way to V - v_e <= eta and
// v_e >= kept_version.
AdmissionDecision DecideAdmission(const StalenessOptions& options, const AdmissionState& state);

// One outstanding group that is not claimed, as the consumption rule sees it.
struct GroupAge {
  int64_t ordinal = 0;
  int64_t min_version = 0;
  int64_t max_version = 0;  // newest loss-bearing token; only read for complete groups
  bool ready = false;       // complete: may be claimed
};

struct ConsumptionDecision {
  bool claim = false;
  std::vector<int64_t> ordinals;     // exactly B, sorted by ordinal, when `claim`
  std::optional<int64_t> waits_for;  // ordinal of the oldest group that blocks the step
  std::string reason;                // set in both cases; names the group waited for
};

// Which groups does the step that starts from `version` take? The oldest ready ones, by
// (min version, ordinal), each checked against the bound once more (under kMask: at least one
// token of the group is within the bound). Under kWait only if for every k in 0..eta at most k * B
// of the remaining groups have min version <= V - eta + k. O(n log n) in the number of groups.
ConsumptionDecision DecideConsumption(const StalenessOptions& options, int64_t version,
                                      const std::vector<GroupAge>& outstanding);

enum class Verdict { kKeep, kDrop, kRequeue, kDead };
struct DispositionDecision {
  Verdict verdict = Verdict::kKeep;
  std::string reason;  // short fixed label, set unless kKeep
};

// What becomes of an unclaimed outstanding group once `version` is committed?
//   kWait: always kept.
//   kDrop, kRequeue: hopeless when version - min > eta; then dropped (too_old), started again
//     (too_old), or, having been started again `max_requeues` times, dead (too_slow).
//   kMask: a ready group without a single token within the bound is dropped (fully_masked).
DispositionDecision DecideDisposition(const StalenessOptions& options, int64_t version,
                                      const GroupAge& group, int64_t requeues,
                                      int64_t max_requeues);

// How the lease of a group can end while samples are missing.
enum class LeaseEnd {
  kReturned,    // its holder stops or has no room: says nothing about the prompt
  kHandedBack,  // nothing could be tried: its environment did not answer
  kFailed,      // engine or environment failed on the prompt
  kExpired,     // not renewed in time
  kWorkerLost,  // its holder was revoked
};
// Labels of the ledger: returned, handed_back, lease_failed, lease_expired, worker_lost.
const char* Name(LeaseEnd end);

// How the leases of a group ended, over all of its attempts.
struct LeaseHistory {
  int64_t failures = 0;    // in kFailed
  int64_t losses = 0;      // consecutive losses of the job at which the lost worker held the group
  int64_t last_loss = 0;   // number of the newest of these
  int64_t hand_backs = 0;  // counted hand-backs and losses since a sample was put
  absl::Time counted_at;   // when hand_backs last grew
};

struct LeaseLimits {
  int64_t max_failures = 1;
  int64_t max_hand_backs = 1;
  absl::Duration lease_ttl;
};

struct LeaseEndDecision {
  LeaseHistory history;  // this end included
  // Set when the group is dead: kFailed after `count` failures and losses, or kHandedBack after
  // `count` hand-backs. Otherwise the group goes back to the queue.
  std::optional<LeaseEnd> dead;
  int64_t count = 0;
  bool behind = false;  // it loses its place in the queue (QueuePlace)
};

// Decides what becomes of a group whose lease ends at `now`. `delivered`: a sample was put under
// the lease. `loss`: for kExpired and kWorkerLost, the number of this loss among the worker losses
// of the job, from 1; all leases that one worker loses are one loss.
//
// * A sample that was put resets losses and hand-backs: the prompt can be worked on.
// * kFailed counts as a failure.
// * A prompt that kills its engine looks like an engine that dies for another reason. But it is
//   held at every loss of the job, while any other prompt soon gives a sample or is not held at a
//   loss. So only consecutive losses add up. Failures and losses together make the group dead at
//   max_failures.
// * kHandedBack, and a loss of any cause, counts towards max_hand_backs, once per lease TTL. So a
//   group that never gives a sample ends, whatever the cause; and it outlives a short outage of its
//   environment, in which it is tried often.
// * A group keeps its place in the queue at the first counted hand-back, so that a short outage of
//   the environment changes no batch at eta = 0. From the second on it loses its place, so that a
//   prompt that always fails blocks no step.
LeaseEndDecision DecideLeaseEnd(LeaseEnd end, bool delivered, int64_t loss, absl::Time now,
                                const LeaseHistory& history, const LeaseLimits& limits);

// The new place of a group that loses its place in the queue, which is leased by (place, ordinal);
// the place of every other group is its ordinal. The new place is behind all waiting prompts. Half
// of the groups, chosen by a bit of the ordinal that changes with each hand-back, go
// `max_in_flight` places further back: this separates prompts that are handed back together because
// of one of them.
int64_t QueuePlace(int64_t high_water, int64_t ordinal, int64_t hand_backs, int64_t max_in_flight);

// How the lease of a row can end without a value for it.
enum class RowEnd {
  kFailed,      // it could not be processed
  kReturned,    // its scorer is unavailable, or its holder has no room
  kExpired,     // not renewed in time
  kWorkerLost,  // its holder was revoked
};

// How the leases of a row ended, for one task.
struct RowCounts {
  int32_t failures = 0;
  int32_t losses = 0;  // consecutive leases that ended with the loss of their worker
};
struct RowEndDecision {
  RowCounts counts;   // this end included
  bool dead = false;  // its group is dead
};

// Decides what becomes of a row whose lease ends: after `max_failures` failures its group is dead,
// otherwise the row is offered again. kReturned and kExpired say nothing about the row and are no
// failures. kWorkerLost may mean that the row kills its workers, or that they are replaced: the
// first `max_failures` losses in a row do not count, each further one is a failure. kFailed and
// kReturned show that a worker outlived the row and reset the losses. So at most 2 * max_failures
// workers in a row are lost with the same row.
RowEndDecision DecideRowEnd(RowEnd end, RowCounts counts, int64_t max_failures);

// The part of a response that bears loss in the step that starts from one version.
struct LossWindow {
  std::vector<uint8_t> loss_mask;  // one entry per response token
  int64_t loss_tokens = 0;
  int64_t masked_tokens = 0;  // took part in the loss but for their age
  // Over loss-bearing tokens. With none left both are the version that the step starts from: such
  // a sample has no staleness.
  int64_t min_version = 0;
  int64_t max_version = 0;
};
// Under kMask tokens sampled before version - eta leave the loss; else the response's own mask.
// `response` must be aligned (CheckResponse).
LossWindow ComputeLossWindow(const StalenessOptions& options, int64_t version,
                             const Response& response);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_STALENESS_POLICY_H_
