#include "controller/jobs/plan/death_reason.h"

#include <algorithm>
#include <vector>

#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {

std::string ReasonLine(const DeadLetter& letter) {
  // The store truncates by bytes, and a scorer's text may have several lines.
  std::string reason = ValidUtf8(letter.reason);
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

std::string LastDeath(TrajectoryStore& store) {
  const absl::StatusOr<std::vector<DeadLetter>> letters = store.DeadLetters(1);
  return letters.ok() && !letters->empty()
             ? StrCat("; the last one: ", ReasonLine(letters->front()))
             : "";
}

}  // namespace freshet
