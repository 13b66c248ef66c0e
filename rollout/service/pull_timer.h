#ifndef FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_
#define FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

struct PullDecision {
  bool pull = false;
  PolicyVersion at_least;  // minimum version to pull
  std::string reason;      // never empty
};

// Decides when an engine pulls weights because no publication has brought them: it has none, or a
// newer version exists and no version newer than its own arrived within the time a publication
// takes. Independent of the trainer's view of the engine. Not thread-safe.
class PullTimer {
 public:
  // `without`: patience of an engine without weights, from `begin`; `behind`: of one whose version
  // is not the newest. Also the interval between pulls.
  PullTimer(absl::Duration without, absl::Duration behind, absl::Time begin)
      : without_(without), behind_(behind), since_(begin) {}

  // `held`: the engine's version; `published`: the newest version known to exist. Decides to pull
  // at most once per patience.
  PullDecision Look(const std::optional<PolicyVersion>& held, const PolicyVersion& published,
                    absl::Time now);

 private:
  const absl::Duration without_;
  const absl::Duration behind_;
  std::optional<PolicyVersion> held_;
  bool current_ = false;  // at the last look
  absl::Time since_;      // start of this state, or the last pull in it
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_
