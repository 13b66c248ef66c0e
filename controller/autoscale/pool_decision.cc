#include "controller/autoscale/pool_decision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr double kGrowUtilization = 0.80;
constexpr double kShrinkUtilization = 0.65;
constexpr double kTrainerWaits = 0.05;
constexpr double kTrainerStarves = 0.5;
constexpr double kEnginesMissing = 0.8;
constexpr double kStragglerSteps = 1.5;
constexpr double kEnginesThere = 0.9;
constexpr double kNoRoom = 0.9;
constexpr double kTrialGrowth = 1.3;
constexpr double kLeastGain = 0.25;
constexpr int kTrialWindows = 3;  // without the first one
constexpr int64_t kStepsPerWindow = 2;
constexpr int kWindowsToGrow = 2;
constexpr absl::Duration kLongestGap = absl::Seconds(10);
// Avoids an unbounded demand if the trainer waits all the time.
constexpr double kLeastWorked = 0.02;
constexpr int32_t kMostEngines = 1'000'000;

using Window = PoolState::Window;

std::string Share(double ratio) {
  return absl::StrFormat("%.0f %%", 100 * std::clamp(ratio, 0.0, 1.0));
}
std::string Rounded(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Seconds(1)));
}
std::string Engines(int64_t number) { return StrCat(number, number == 1 ? " engine" : " engines"); }

// Number of engines that serve the demand at `utilization`.
int32_t EnginesFor(double demand, double utilization) {
  const double engines = std::ceil(demand / utilization - 1e-6);
  return static_cast<int32_t>(std::clamp(engines, 1.0, double{kMostEngines}));
}

struct Measured {
  double wait = 0;   // share of the trainer
  double busy = 0;   // share of the mean engine
  double ready = 0;  // engines
  double demand = 0;
  double pace = 0;          // steps per second
  double age = 0;           // seconds, mean over the window
  double step_seconds = 0;  // infinite if no step completed
  double full = 0;          // share of time in which the bound had no room
  double worked = 0;        // seconds in which the trainer worked
  double seconds = 0;       // total
};

Measured Evaluate(const Window& window, int64_t version) {
  Measured m;
  m.wait = std::clamp(1 - window.worked / window.seconds, 0.0, 1.0);
  m.ready = window.ready / window.seconds;
  m.busy = window.ready > 0 ? window.busy / window.ready : 0;
  m.demand = window.busy / std::max(window.worked, kLeastWorked * window.seconds);
  m.pace = static_cast<double>(version - window.first_version) / window.seconds;
  m.age = window.age / window.seconds;
  m.full = window.full / window.seconds;
  m.worked = window.worked;
  m.seconds = window.seconds;
  m.step_seconds = m.pace > 0 ? 1 / m.pace : std::numeric_limits<double>::infinity();
  return m;
}

class Decider {
 public:
  Decider(const ScalingRules& rules, const PoolBounds& bounds, const PoolState& state,
          const PoolSignals& signals)
      : rules_(rules), bounds_(bounds), now_(signals), s_(state) {}

  PoolDecision Decide() {
    const bool first = s_.wanted < 0;
    if (first) s_.wanted = now_.expected;
    s_.wanted = std::clamp(s_.wanted, Least(), bounds_.max);
    EnterPhase(first);
    if (now_.phase == JobPhase::kTrains) {
      Train();
    } else {
      WithoutTraining();
    }
    return {s_.wanted, s_.reason, s_.text, s_};
  }

 private:
  void Because(ScalingReason reason, std::string text) {
    s_.reason = reason;
    s_.text = std::move(text);
  }
  void ForgetMeasurements() {
    s_.window.reset();
    ForgetStreaks();
    ForgetTrial();
    s_.base_engines = 0;
  }
  void ForgetTrial() {
    s_.trial_windows = 0;
    s_.trial_worked = s_.trial_seconds = 0;
  }
  void ForgetStreaks() {
    s_.out_windows = 0;
    s_.in_since.reset();
    s_.in_most = 0;
  }
  // Measurements from before a change are not comparable, so they are dropped.
  void Change(int32_t wanted) {
    s_.wanted = wanted;
    ForgetStreaks();
    ForgetTrial();
  }

  // A job needs one engine to start.
  int32_t Least() const {
    return std::min(bounds_.max, std::max(bounds_.min, now_.phase == JobPhase::kNone ? 0 : 1));
  }

  void EnterPhase(bool first) {
    if (!now_.job.empty() && now_.job != s_.job) {
      s_.job = now_.job;
      s_.ceiling_until = s_.floor_until = s_.shrunk = absl::InfinitePast();
      ForgetMeasurements();
    }
    if (s_.phase == now_.phase && !first) return;
    s_.phase = now_.phase;
    s_.phase_since = now_.time;
    ForgetMeasurements();
    if (now_.phase == JobPhase::kTrains) Because(ScalingReason::kMeasuring, "measuring");
  }

  // Decision while nothing is trained.
  void WithoutTraining() {
    absl::Duration patience = rules_.shrink_after;
    switch (now_.phase) {
      case JobPhase::kStarts:
        patience = absl::InfiniteDuration();
        Because(ScalingReason::kJobStarts, "the job opens model and data, or warms up");
        break;
      case JobPhase::kEnds:
        patience = absl::InfiniteDuration();
        Because(ScalingReason::kJobEnds, "all groups of the job's last steps exist");
        break;
      case JobPhase::kTrainerAway:
        patience = rules_.trainer_patience;
        Because(ScalingReason::kTrainerAway, "the trainer is not connected");
        break;
      case JobPhase::kUnknown:
        patience = absl::InfiniteDuration();
        Because(ScalingReason::kUnknown, "the datastore does not answer");
        break;
      case JobPhase::kPaused:
        Because(ScalingReason::kJobPaused, "the job is paused");
        break;
      case JobPhase::kQueued:
        Because(ScalingReason::kJobWaits, "a job waits for its turn");
        break;
      case JobPhase::kTrains:
      case JobPhase::kNone:
        Because(ScalingReason::kNoJob, "no job");
    }
    const int32_t least = Least();
    if (s_.wanted == least || patience == absl::InfiniteDuration()) return;
    const absl::Duration left = s_.phase_since + patience - now_.time;
    if (left <= absl::ZeroDuration()) {
      Change(least);
    } else {
      s_.text += StrCat("; ", Engines(least), " in ", Rounded(absl::Ceil(left, absl::Seconds(1))));
    }
  }

  void Train() {
    if (!s_.window.has_value()) {
      s_.window = Window{now_.time, now_.time, now_.version};
      return;
    }
    Window& window = *s_.window;
    const double seconds =
        std::max(0.0, absl::ToDoubleSeconds(std::min(now_.time - window.last, kLongestGap)));
    window.last = now_.time;
    window.seconds += seconds;
    window.worked += seconds * (1 - std::clamp(now_.trainer_wait, 0.0, 1.0));
    window.busy += seconds * std::max(0.0, now_.busy);
    window.ready += seconds * now_.ready;
    window.age += seconds * absl::ToDoubleSeconds(now_.queue_age);
    if (now_.outstanding >= now_.admissible) window.full += seconds;
    const absl::Duration length = absl::Seconds(window.seconds);
    const bool steps = now_.version - window.first_version >= kStepsPerWindow;
    if (length < rules_.window || (!steps && length < rules_.longest_window)) return;
    const absl::Time begun = window.begun;
    const Measured m = Evaluate(window, now_.version);
    s_.window = Window{now_.time, now_.time, now_.version};
    Judge(m, begun);
  }

  void Judge(const Measured& m, absl::Time begun) {
    if (m.ready >= kEnginesThere * s_.wanted && ++s_.trial_windows > 1) {
      s_.trial_worked += m.worked;
      s_.trial_seconds += m.seconds;
    }
    const int32_t for_growth = EnginesFor(m.demand, kGrowUtilization);
    const int32_t for_shrinking = EnginesFor(m.demand, kShrinkUtilization);
    const std::string stats =
        StrCat("the trainer waits ", Share(m.wait), " of its time, ",
               Engines(static_cast<int64_t>(std::lround(m.ready))), " work ", Share(m.busy));
    if (m.wait >= kTrainerWaits && for_growth > s_.wanted) {
      s_.in_since.reset();
      s_.in_most = 0;
      Grow(m, std::min(for_growth, std::max(s_.wanted + 1, 2 * s_.wanted)), stats);
      return;
    }
    s_.out_windows = 0;
    if (m.wait < kTrainerWaits) s_.base_engines = 0;
    if (for_shrinking < s_.wanted && m.wait < kTrainerStarves) {
      Shrink(for_shrinking, begun, stats);
      return;
    }
    s_.in_since.reset();
    s_.in_most = 0;
    if (m.wait >= 0.25 && m.busy < 0.6) {
      Because(ScalingReason::kBothWait, stats);
    } else {
      Because(ScalingReason::kBalanced, stats);
    }
  }

  void Grow(const Measured& m, int32_t asked, const std::string& stats) {
    if (m.ready < kEnginesMissing * s_.wanted) {
      s_.out_windows = 0;
      return Because(
          ScalingReason::kEnginesMissing,
          StrCat(absl::StrFormat("%.1f", m.ready), " of ", s_.wanted, " engines were ready"));
    }
    if (m.age >= kStragglerSteps * m.step_seconds) {
      s_.out_windows = 0;
      return Because(ScalingReason::kStragglers,
                     StrCat(stats, "; complete groups wait ", Rounded(absl::Seconds(m.age)),
                            " for older ones"));
    }
    const Gain gain = JudgeGain();
    if (gain == Gain::kNone) return TakeBack(stats);
    if (gain == Gain::kNotKnown && m.ready < kEnginesThere * s_.wanted) {
      return Hold(ScalingReason::kEnginesMissing,
                  StrCat(absl::StrFormat("%.1f", m.ready), " of ", s_.wanted,
                         " engines were ready: too few to judge the last growth"));
    }
    if (s_.wanted >= bounds_.max) return Hold(ScalingReason::kAtMaximum, stats);
    const bool room = now_.time >= s_.floor_until || m.full < kNoRoom;
    if (s_.wanted >= now_.admissible || !room) {
      return Hold(ScalingReason::kStalenessBound,
                  StrCat(stats, "; the bound admits ", now_.admissible, " groups"));
    }
    const bool capped = now_.time < s_.ceiling_until;
    if (capped && s_.wanted >= s_.ceiling) {
      return Hold(ScalingReason::kNoGain,
                  StrCat(stats, "; more than ", Engines(s_.ceiling), " made steps no faster"));
    }
    if (s_.out_windows == 0) {
      s_.out_least = asked;
      s_.out_worked = s_.out_seconds = 0;
    }
    s_.out_least = std::min(s_.out_least, asked);
    s_.out_worked += m.worked;
    s_.out_seconds += m.seconds;
    if (++s_.out_windows < kWindowsToGrow || gain == Gain::kNotKnown) {
      if (s_.reason == ScalingReason::kMeasuring) s_.text = stats;
      return;
    }
    int64_t wanted = std::min<int64_t>({s_.out_least, bounds_.max, now_.admissible});
    if (capped) wanted = std::min<int64_t>(wanted, s_.ceiling);
    if (s_.base_engines == 0) {
      s_.base_engines = s_.wanted;
      s_.base_rate = s_.out_worked / s_.out_seconds;
    }
    Change(static_cast<int32_t>(wanted));
    if (now_.time - s_.shrunk < rules_.memory) {
      s_.floor = s_.wanted;
      s_.floor_until = now_.time + rules_.memory;
    }
    Because(ScalingReason::kTrainerWaits, stats);
  }

  void Hold(ScalingReason reason, std::string text) {
    s_.out_windows = 0;
    Because(reason, std::move(text));
  }

  enum class Gain { kNotJudged, kNotKnown, kGood, kNone };
  Gain JudgeGain() {
    if (s_.base_engines == 0) return Gain::kNotJudged;
    const double growth = static_cast<double>(s_.wanted) / s_.base_engines;
    if (growth < kTrialGrowth) return Gain::kNotJudged;
    if (s_.trial_windows < kTrialWindows) return Gain::kNotKnown;
    // The speedup is limited by the pace of a trainer that never waits.
    const double rate = s_.trial_worked / s_.trial_seconds;
    const double hoped = std::min(growth, 1 / std::max(s_.base_rate, kLeastWorked));
    if (rate < s_.base_rate * (1 + kLeastGain * (hoped - 1))) return Gain::kNone;
    s_.base_engines = s_.wanted;
    s_.base_rate = rate;
    return Gain::kGood;
  }

  void TakeBack(const std::string& stats) {
    int32_t back = std::clamp(s_.base_engines, bounds_.min, bounds_.max);
    if (now_.time < s_.floor_until) back = std::max(back, std::min(s_.floor, s_.wanted));
    Because(ScalingReason::kNoGain,
            StrCat(stats, "; more than ", Engines(back), " made steps no faster"));
    Change(back);
    s_.ceiling = back;
    s_.ceiling_until = now_.time + rules_.memory;
    s_.base_engines = 0;
  }

  void Shrink(int32_t asked, absl::Time begun, const std::string& stats) {
    if (!s_.in_since.has_value()) s_.in_since = begun;
    s_.in_most = std::max(s_.in_most, asked);
    int32_t least = std::max({bounds_.min, 1, (s_.wanted + 1) / 2});
    const bool kept = now_.time < s_.floor_until;
    if (kept) least = std::max(least, std::min(s_.floor, s_.wanted));
    const int32_t wanted = std::max(s_.in_most, least);
    if (wanted >= s_.wanted) {
      if (s_.wanted <= bounds_.min) return Because(ScalingReason::kAtMinimum, stats);
      return Because(
          ScalingReason::kBalanced,
          kept ? StrCat(stats, "; fewer than ", Engines(s_.floor), " were too few a while ago")
               : stats);
    }
    if (now_.time - *s_.in_since < rules_.shrink_after) return;
    Change(wanted);
    s_.shrunk = now_.time;
    s_.base_engines = 0;
    Because(ScalingReason::kEnginesIdle, stats);
  }

  const ScalingRules& rules_;
  const PoolBounds& bounds_;
  const PoolSignals& now_;
  PoolState s_;
};

}  // namespace

const char* Name(ScalingReason reason) {
  static constexpr const char* kNames[kNumScalingReasons] = {"measuring",
                                                             "balanced",
                                                             "trainer_waits",
                                                             "engines_idle",
                                                             "both_wait",
                                                             "stragglers",
                                                             "staleness_bound",
                                                             "no_gain",
                                                             "engines_missing",
                                                             "at_minimum",
                                                             "at_maximum",
                                                             "job_waits",
                                                             "job_starts",
                                                             "job_ends",
                                                             "job_paused",
                                                             "trainer_away",
                                                             "unknown",
                                                             "no_job",
                                                             "fixed"};
  return kNames[static_cast<int>(reason)];
}

PoolDecision DecidePool(const ScalingRules& rules, const PoolBounds& bounds, const PoolState& state,
                        const PoolSignals& signals) {
  return Decider(rules, bounds, state, signals).Decide();
}

}  // namespace freshet
