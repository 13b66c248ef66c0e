#ifndef FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_
#define FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace freshet {

// How many rollouts a pool should have. Somebody else makes it so (an HPA, KEDA, a person).
//
// The rule. Two shares of time say who waits for whom: w, of the trainer for samples, and b, of the
// mean engine at work. What the trainer would take if it never waited is, in engines at work,
//
//     demand = (engine-seconds at work) / (seconds in which the trainer did not wait)
//
// and the pool should have demand / u of them: u = 0.80 when it grows, 0.65 when it shrinks. What
// lies between is left alone, so that a step out is not followed by a step in. Above eta = 0 the
// pool ends where the trainer never waits and engines idle a fifth of their time at the most; at
// eta = 0, where both sides take turns, where both wait about as long.
//
// Measured is in windows, one after the other: at least `window` of time and two training steps,
// but no longer than `longest_window`.
//
// Growth. The number grows when the trainer waited (w >= 5 %) and two windows in a row asked for
// more, to the lesser of the two, at most twofold. It does not grow
//  - while fewer than 80 % of the engines asked for are ready (engines_missing);
//  - while complete groups have waited for the trainer longer than one and a half steps take: it
//    then waits for a straggler, not for engines (stragglers);
//  - beyond one engine per prompt group that the staleness bound admits; nor, in the half hour in
//    which it may not shrink, while the bound has no room for another group (staleness_bound);
//  - when growing has not helped. Once the pool is larger by 30 %, two windows with all engines at
//    work must show a quarter of the pace that was hoped for, or it goes back and stays there for
//    half an hour (no_gain).
//
// Shrinking. The number shrinks when every window of `shrink_after` asked for fewer, to the most of
// those, at most by half; not while the trainer waits half of its time. When it has to grow within
// half an hour of that, it does not shrink again for half an hour.
//
// Without training. The number is held while a job starts, ends, or nothing is known of it, and for
// `trainer_patience` while its trainer is away. It goes to the lower bound `shrink_after` after the
// pool has lost its last job, or its job was paused; to 1 where that is 0 and a job is there.
//
// So within half an hour of one job the direction changes four times at the most, for any load.
//
// Settling. Under a load that stays as it is, with the longer of `window` and two steps as W: the
// number is final, but for one engine, after (log2(last / first) + 1) times (4 W and the start of
// the new engines) on the way out, and after (log2(first / last) + 1) times (shrink_after + 2 W) on
// the way in.
//
// The staleness bound is kept by the datastore's admission gate, whoever comes and goes: no number
// of engines can break it.
//
// Pure: time is an argument. Units: shares are 0..1, engines and groups are counts.

// Why the number is what it is. The names (Name) are values of a metric's label and of the API.
enum class ScalingReason {
  kMeasuring,       // nothing has been measured yet
  kBalanced,        // engines keep up, and are not too many
  kTrainerWaits,    // more: the trainer waits and the engines are busy
  kEnginesIdle,     // fewer: the engines idle
  kBothWait,        // trainer and engines wait: for rewards, environments, or each other
  kStragglers,      // the trainer waits for a few long samples: more engines would not help
  kStalenessBound,  // the bound admits no more groups than there are engines
  kNoGain,          // more engines have not made steps faster
  kEnginesMissing,  // engines that were asked for are not ready
  kAtMinimum,
  kAtMaximum,
  kJobWaits,     // a job waits for the pool
  kJobStarts,    // it opens model and data, or warms up
  kJobEnds,      // all groups of its last steps are there
  kJobPaused,    // on request
  kTrainerAway,  // the trainer is lost, or restarts
  kUnknown,      // nothing is known of the job: the datastore does not answer
  kNoJob,
  kFixed,  // the pool has no bounds: what was asked for, or what there is
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
  absl::Duration memory = absl::Minutes(30);  // of steps that had to be taken back

  ScalingRules Scaled(double factor) const {
    return {window * factor, longest_window * factor, shrink_after * factor,
            trainer_patience * factor, memory * factor};
  }
};

// What the job of a pool is doing. A pool has one job at a time.
enum class JobPhase { kNone, kQueued, kStarts, kTrains, kEnds, kPaused, kTrainerAway, kUnknown };

// The pool at one moment.
struct PoolSignals {
  absl::Time time;
  JobPhase phase = JobPhase::kNone;
  std::string job;       // "" without one
  int32_t ready = 0;     // engines in the state ready
  int32_t expected = 0;  // engines that are there or will come back: not lost
  double busy = 0;       // sum over ready engines of their share of time at work
  // While it trains:
  double trainer_wait = 0;  // share of time, of about the last second
  int64_t version = 0;      // training steps committed
  int64_t admissible = 0;   // groups that the staleness bound lets be outstanding
  int64_t outstanding = 0;  // groups
  // How long the oldest complete group has waited for the trainer; 0 without one.
  absl::Duration queue_age;
};

// What is remembered from one decision to the next. A value; the default is a pool never looked at.
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

  int32_t wanted = -1;  // -1: never decided
  ScalingReason reason = ScalingReason::kMeasuring;
  std::string text;
  std::string job;
  JobPhase phase = JobPhase::kNone;
  absl::Time phase_since;
  std::optional<Window> window;
  // Windows in a row that asked for more, and the least that one of them asked for.
  int out_windows = 0;
  int32_t out_least = 0;
  double out_worked = 0;
  double out_seconds = 0;
  // Since when all windows have asked for fewer, and the most that one of them asked for.
  std::optional<absl::Time> in_since;
  int32_t in_most = 0;
  // Engines, and the share of time that the trainer worked, before the pool began to grow; 0
  // engines: none.
  int32_t base_engines = 0;
  double base_rate = 0;
  // The same since the number changed last and the engines were there, without the first window.
  int trial_windows = 0;
  double trial_worked = 0;
  double trial_seconds = 0;
  // Not above / not below this, until then.
  int32_t ceiling = 0;
  absl::Time ceiling_until = absl::InfinitePast();
  int32_t floor = 0;
  absl::Time floor_until = absl::InfinitePast();
  absl::Time shrunk = absl::InfinitePast();  // when it last did, for want of work
};

struct PoolDecision {
  int32_t wanted = 0;  // engines, within the bounds
  ScalingReason reason = ScalingReason::kMeasuring;
  std::string text;  // the reason for people, with stats
  PoolState next;    // to be given to the next decision
};

// Decides at signals.time, which does not go backwards. To be asked about once a second: a gap of
// more than 10 s between two questions counts as 10 s of what the later one says.
PoolDecision DecidePool(const ScalingRules& rules, const PoolBounds& bounds, const PoolState& state,
                        const PoolSignals& signals);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_DECISION_H_
