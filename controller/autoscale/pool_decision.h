#ifndef FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_
#define FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace freshet {

// Decides how many rollouts a pool should have. Something else applies the number (an HPA, KEDA, a
// person).
//
// Rule. Two time shares are measured: w, the share in which the trainer waits for samples, and b,
// the share in which the mean engine works. The number of working engines that would saturate the
// trainer is
//
//     demand = (engine-seconds at work) / (seconds in which the trainer did not wait)
//
// The pool should have demand / u engines: u = 0.80 when it grows, 0.65 when it shrinks. The gap
// between the two is a dead band that prevents oscillation. With eta > 0 the pool settles where the
// trainer never waits and engines idle at most a fifth of the time; with eta = 0, where both sides
// alternate, where both wait about equally long.
//
// Measurements use consecutive windows: at least `window` long and two training steps, but at most
// `longest_window`.
//
// Growth. The pool grows if the trainer waited (w >= 5 %) and two consecutive windows asked for
// more: to the smaller of the two numbers, at most to twice the current one. It does not grow
//  - while fewer than 80 % of the requested engines are ready (engines_missing);
//  - while complete groups have waited for the trainer for more than 1.5 step times: it then waits
//    for a straggler, not for engines (stragglers);
//  - beyond one engine per prompt group that the staleness bound admits; nor, during the half hour
//    in which it may not shrink, while the bound has no room for another group (staleness_bound);
//  - if growth has not helped: once the pool is 30 % larger, two windows with all engines working
//    must show a quarter of the expected speedup, or the pool goes back and stays there for half an
//    hour (no_gain).
//
// Shrinking. The pool shrinks if every window of `shrink_after` asked for fewer: to the largest of
// those numbers, at most to half; not while the trainer waits half of the time. If it has to grow
// again within half an hour of that, it does not shrink for half an hour.
//
// Without training. The number is held while a job starts or ends, while its state is unknown, and
// for `trainer_patience` while its trainer is missing. It drops to the lower bound `shrink_after`
// after the pool has lost its last job or its job was paused; to 1 if the lower bound is 0 and
// there is a job.
//
// So for one job the direction changes at most four times in half an hour, under any load.
//
// Settling. Under constant load, with W = max(`window`, two steps), the number is final to within
// one engine after (log2(last / first) + 1) * (4 W + start time of the new engines) when growing,
// and after (log2(first / last) + 1) * (shrink_after + 2 W) when shrinking.
//
// The datastore's admission gate enforces the staleness bound for any number of engines.
//
// Pure: time is an argument. Units: shares are 0..1, engines and groups are counts.

// Reason for the current number. The names (Name) are values of a metric label and of the API.
enum class ScalingReason {
  kMeasuring,       // nothing measured yet
  kBalanced,        // the engines keep up and are not too many
  kTrainerWaits,    // grow: the trainer waits and the engines are busy
  kEnginesIdle,     // shrink: the engines idle
  kBothWait,        // both trainer and engines wait: for rewards, environments or each other
  kStragglers,      // the trainer waits for a few long samples; more engines would not help
  kStalenessBound,  // the bound admits no more groups than there are engines
  kNoGain,          // more engines did not make steps faster
  kEnginesMissing,  // requested engines are not ready
  kAtMinimum,
  kAtMaximum,
  kJobWaits,     // a job waits for the pool
  kJobStarts,    // it loads model and data, or warms up
  kJobEnds,      // all groups of its last steps exist
  kJobPaused,    // by the user
  kTrainerAway,  // the trainer is lost or restarting
  kUnknown,      // the datastore does not answer
  kNoJob,
  kFixed,  // the pool has no bounds: requested or actual number
};
inline constexpr int kNumScalingReasons = 19;
// "trainer_waits"; in the order of the enum.
const char* Name(ScalingReason reason);

struct PoolBounds {
  int32_t min = 1;
  int32_t max = 1;
  bool operator==(const PoolBounds&) const = default;
};

struct ScalingRules {
  absl::Duration window = absl::Seconds(15);
  absl::Duration longest_window = absl::Minutes(10);
  absl::Duration shrink_after = absl::Minutes(2);
  absl::Duration trainer_patience = absl::Minutes(10);
  absl::Duration memory = absl::Minutes(30);  // how long reverted changes are remembered

  ScalingRules Scaled(double factor) const {
    return {window * factor, longest_window * factor, shrink_after * factor,
            trainer_patience * factor, memory * factor};
  }
};

// What the job of a pool is doing. A pool has at most one job.
enum class JobPhase { kNone, kQueued, kStarts, kTrains, kEnds, kPaused, kTrainerAway, kUnknown };

// Measurements of the pool at one moment.
struct PoolSignals {
  absl::Time time;
  JobPhase phase = JobPhase::kNone;
  std::string job;       // "" if none
  int32_t ready = 0;     // engines in state ready
  int32_t expected = 0;  // engines that exist or will come back: not lost
  double busy = 0;       // sum of the ready engines' shares of time at work
  // While training:
  double trainer_wait = 0;  // share of time over about the last second
  int64_t version = 0;      // committed training steps
  int64_t admissible = 0;   // outstanding groups that the staleness bound admits
  int64_t outstanding = 0;  // groups
  // How long the oldest complete group has waited for the trainer; 0 if none.
  absl::Duration queue_age;
};

// State carried from one decision to the next. Default: a pool that was never looked at.
struct PoolState {
  struct Window {
    absl::Time begun;
    absl::Time last;
    int64_t first_version = 0;
    double seconds = 0;
    double worked = 0;  // seconds in which the trainer did not wait
    double busy = 0;    // engine-seconds at work
    double ready = 0;   // engine-seconds
    double age = 0;     // integral of queue_age, in seconds squared
    double full = 0;    // seconds in which the bound had no room for another group
  };

  int32_t wanted = -1;  // -1: not decided yet
  ScalingReason reason = ScalingReason::kMeasuring;
  std::string text;
  std::string job;
  JobPhase phase = JobPhase::kNone;
  absl::Time phase_since;
  std::optional<Window> window;
  // Consecutive windows that asked for more, and the smallest number among them.
  int out_windows = 0;
  int32_t out_least = 0;
  double out_worked = 0;
  double out_seconds = 0;
  // Since when every window has asked for fewer, and the largest number among them.
  std::optional<absl::Time> in_since;
  int32_t in_most = 0;
  // Number of engines and share of time that the trainer worked before the growth began. 0 engines:
  // no growth in progress.
  int32_t base_engines = 0;
  double base_rate = 0;
  // The same measured since the last change with all engines ready, excluding the first window.
  int trial_windows = 0;
  double trial_worked = 0;
  double trial_seconds = 0;
  // Upper and lower limits that hold until the given times.
  int32_t ceiling = 0;
  absl::Time ceiling_until = absl::InfinitePast();
  int32_t floor = 0;
  absl::Time floor_until = absl::InfinitePast();
  absl::Time shrunk = absl::InfinitePast();  // when it last shrank because engines idled
};

struct PoolDecision {
  int32_t wanted = 0;  // engines, within the bounds
  ScalingReason reason = ScalingReason::kMeasuring;
  std::string text;  // the reason as a sentence, with stats
  PoolState next;    // pass it to the next decision
};

// Decides at signals.time, which must not go backwards. Call it about once a second: a gap of more
// than 10 s between two calls counts as 10 s with the later signals.
PoolDecision DecidePool(const ScalingRules& rules, const PoolBounds& bounds, const PoolState& state,
                        const PoolSignals& signals);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_
