#include "controller/jobs/plan/death_reason.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "base/utf8.h"

namespace freshet {

std::string ReasonLine(const DeadLetter& letter) {
  // The store truncates by bytes, and a scorer's text may have several lines.
  std::string reason = ValidUtf8(letter.reason);
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

absl::StatusOr<std::string> LastDeath(TrajectoryStore& store) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<DeadLetter> letters, store.DeadLetters(1));
  return letters.empty() ? std::string() : ReasonLine(letters.front());
}

}  // namespace freshet
