#include "rollout/service/pull_timer.h"

#include "base/str_cat.h"

namespace freshet {

PullDecision PullTimer::Look(const std::optional<PolicyVersion>& held,
                             const PolicyVersion& published, absl::Time now) {
  const bool current = held.has_value() && *held >= published;
  if (held != held_ || current != current_) since_ = now;
  held_ = held;
  current_ = current;
  PullDecision decision;
  if (current) {
    decision.reason = StrCat("version ", held->version, " is the newest known");
    return decision;
  }
  const absl::Duration patience = held.has_value() ? behind_ : without_;
  decision.pull = now - since_ >= patience;
  if (decision.pull) since_ = now;
  if (held.has_value()) {
    decision.at_least = published;
    decision.reason =
        StrCat("version ", published.version, " of lineage ", published.lineage,
               " is out, version ", held->version, " of lineage ", held->lineage, " is held");
  } else {
    decision.reason = "no weights yet";
  }
  return decision;
}

}  // namespace freshet
