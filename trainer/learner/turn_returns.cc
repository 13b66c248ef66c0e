#include "trainer/learner/turn_returns.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace freshet {
namespace {

// Relative to the sum of all magnitudes; smaller values are rounding errors of sums that cancel.
constexpr double kTolerance = 1e-12;

}  // namespace

std::vector<Turn> TurnReturns(const Score& score, int32_t tokens, double discount,
                              const std::vector<int32_t>& segments) {
  std::vector<Turn> turns;
  double rest = score.reward;
  double magnitude = std::abs(score.reward);
  int32_t begin = 0;
  auto segment = segments.begin();
  // Ends turns where segments begin, before `end`.
  const auto split = [&](int32_t end) {
    for (; segment != segments.end() && *segment < end; ++segment) {
      if (*segment > begin) turns.push_back({std::exchange(begin, *segment), *segment, 0});
    }
  };
  for (const auto& [step_end, reward] : score.step_rewards) {
    const int32_t end = std::min(step_end, tokens);
    split(end);
    rest -= reward;
    magnitude += std::abs(reward);
    if (end > begin) {
      turns.push_back({begin, end, reward});
      begin = end;
    } else if (!turns.empty()) {
      turns.back().turn_return += reward;
    }
  }
  split(tokens);
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
