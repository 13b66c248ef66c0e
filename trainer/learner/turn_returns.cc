#include "trainer/learner/turn_returns.h"

#include <algorithm>
#include <cmath>

namespace freshet {
namespace {

// Relative to the sum of all magnitudes; smaller values are rounding errors of sums that cancel.
constexpr double kTolerance = 1e-12;

}  // namespace

std::vector<Turn> TurnReturns(const Score& score, int32_t tokens, double discount) {
  std::vector<Turn> turns;
  double rest = score.reward;
  double magnitude = std::abs(score.reward);
  int32_t begin = 0;
  for (const auto& [step_end, reward] : score.step_rewards) {
    const int32_t end = std::min(step_end, tokens);
    rest -= reward;
    magnitude += std::abs(reward);
    if (end > begin) {
      turns.push_back({begin, end, reward});
      begin = end;
    } else if (!turns.empty()) {
      turns.back().turn_return += reward;
    }
  }
  if (begin < tokens) turns.push_back({begin, tokens, 0});
  double value = rest;
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    value += turn->turn_return;
    if (std::abs(value) <= kTolerance * magnitude) value = 0;
    turn->turn_return = value;
    value *= discount;
  }
  return turns;
}

}  // namespace freshet
