#include "controller/jobs/plan/rollout_tally.h"

#include <algorithm>

namespace freshet {

void RolloutTally::Take(const std::string& assignment, const cluster::v1::RolloutTotals& totals) {
  cluster::v1::RolloutTotals& before = known_[assignment];
  const auto growth = [](auto now, auto then) { return std::max(now - then, decltype(now)(0)); };
  sum_.set_tokens_generated(sum_.tokens_generated() +
                            growth(totals.tokens_generated(), before.tokens_generated()));
  sum_.set_idle_seconds(sum_.idle_seconds() + growth(totals.idle_seconds(), before.idle_seconds()));
  sum_.set_swap_seconds(sum_.swap_seconds() + growth(totals.swap_seconds(), before.swap_seconds()));
  before = totals;
}

}  // namespace freshet
