#ifndef FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_
#define FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

struct PullDecision {
  bool pull = false;
  PolicyVersion at_least;  // of what is pulled
  std::string reason;      // never empty
};

// When an engine asks others for weights, since no publication has brought them: it has none, or a
// newer version is out and nothing newer than its own came for longer than a publication takes. So
// it does not depend on what the trainer believes of it. Not thread-safe.
class PullTimer {
 public:
  // `without`: patience of an engine without weights, from `begin` on; `behind`: of one whose
  // version is not the newest. Also the time between two pulls.
  PullTimer(absl::Duration without, absl::Duration behind, absl::Time begin)
      : without_(without), behind_(behind), since_(begin) {}

  // `held`: the engine's version; `published`: the newest that it knows to be out. True at most
  // once per patience.
  PullDecision Look(const std::optional<PolicyVersion>& held, const PolicyVersion& published,
                    absl::Time now);

 private:
  const absl::Duration without_;
  const absl::Duration behind_;
  std::optional<PolicyVersion> held_;
  bool current_ = false;  // at the last look
  absl::Time since_;      // of this state, or of the last pull in it
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_PULL_TIMER_H_
