#include "trainer/loss/advantage.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Relative spread below which differences are rounding errors of a reward sum.
constexpr double kConstantTolerance = 1e-12;

bool IsConstant(std::span<const double> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double magnitude = std::max(std::abs(*low), std::abs(*high));
  return *high - *low <= kConstantTolerance * magnitude;
}

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

// values[i] - mean(values); exactly 0 if they are constant.
std::vector<double> Centered(std::span<const double> values) {
  std::vector<double> centered(values.size(), 0.0);
  if (IsConstant(values)) {
    return centered;
  }
  const double mean = Mean(values);
  std::transform(values.begin(), values.end(), centered.begin(),
                 [&](double value) { return value - mean; });
  return centered;
}

// Sample standard deviation of at least two values with mean 0.
double StandardDeviation(std::span<const double> centered) {
  double sum = 0;
  for (const double value : centered) {
    sum += value * value;
  }
  return std::sqrt(sum / static_cast<double>(centered.size() - 1));
}

void Scale(double factor, std::vector<double>& values) {
  for (double& value : values) {
    value *= factor;
  }
}

void DivideByDeviation(std::span<const double> centered, double epsilon,
                       std::vector<double>& values) {
  const double deviation = StandardDeviation(centered);
  if (deviation > 0) {
    Scale(1.0 / (deviation + epsilon), values);
  }
}

absl::Status CheckEpsilon(double epsilon) {
  if (epsilon >= 0 && epsilon <= 1) return absl::OkStatus();
  return InvalidArgument("advantage epsilon ", epsilon, " is outside [0, 1]");
}

using Returns = std::vector<std::vector<std::vector<double>>>;  // by group, sample and turn

absl::Status CheckReturns(AdvantageKind kind, const Returns& returns) {
  const size_t smallest = kind == AdvantageKind::kReinforcePp ? 1 : 2;
  size_t samples = 0;
  for (size_t g = 0; g < returns.size(); ++g) {
    if (returns[g].size() < smallest) {
      return InvalidArgument("group ", g, " has ", returns[g].size(),
                             " rewards: this advantage needs at least ", smallest);
    }
    for (size_t i = 0; i < returns[g].size(); ++i) {
      if (returns[g][i].empty()) {
        return InvalidArgument("sample ", i, " of group ", g, " has no turn");
      }
      for (const double reward : returns[g][i]) {
        if (std::abs(reward) <= kMaxRewardMagnitude) continue;
        return InvalidArgument("reward of sample ", i, " of group ", g, " is ", reward,
                               ": it must be finite and at most 1e30 in magnitude");
      }
    }
    samples += returns[g].size();
  }
  if (samples < 2) {
    return InvalidArgument("the batch has ", samples, " rewards: an advantage needs at least 2");
  }
  return absl::OkStatus();
}

// Turns of different samples, by their index.
using TurnsByIndex = std::vector<std::vector<double*>>;

// Subtracts from every return the mean of its turn's index (RLOO: without its own).
void Center(AdvantageKind kind, const TurnsByIndex& turns) {
  for (const std::vector<double*>& same : turns) {
    std::vector<double> values;
    values.reserve(same.size());
    for (const double* value : same) values.push_back(*value);
    values = Centered(values);
    const auto size = static_cast<double>(same.size());
    if (kind == AdvantageKind::kRloo && same.size() > 1) Scale(size / (size - 1), values);
    for (size_t i = 0; i < same.size(); ++i) *same[i] = values[i];
  }
}

void AddByIndex(std::vector<std::vector<double>>& samples, TurnsByIndex& by_index) {
  for (std::vector<double>& turns : samples) {
    if (by_index.size() < turns.size()) by_index.resize(turns.size());
    for (size_t k = 0; k < turns.size(); ++k) by_index[k].push_back(&turns[k]);
  }
}

void DivideByDeviation(double epsilon, const std::vector<double*>& centered) {
  std::vector<double> values;
  values.reserve(centered.size());
  for (const double* value : centered) values.push_back(*value);
  if (values.size() < 2) return;
  DivideByDeviation(values, epsilon, values);
  for (size_t i = 0; i < centered.size(); ++i) *centered[i] = values[i];
}

std::vector<double*> AllOf(const TurnsByIndex& turns) {
  std::vector<double*> all;
  for (const std::vector<double*>& same : turns) all.insert(all.end(), same.begin(), same.end());
  return all;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> ComputeAdvantages(
    AdvantageKind kind, const std::vector<std::vector<double>>& reward_groups, double epsilon) {
  std::vector<std::vector<std::vector<double>>> turns;
  for (const std::vector<double>& group : reward_groups) {
    auto& samples = turns.emplace_back();
    for (const double reward : group) samples.push_back({reward});
  }
  FRESHET_ASSIGN_OR_RETURN(const auto by_turn, ComputeTurnAdvantages(kind, turns, epsilon));
  std::vector<std::vector<double>> advantages;
  for (const auto& group : by_turn) {
    std::vector<double>& samples = advantages.emplace_back();
    for (const std::vector<double>& turn : group) samples.push_back(turn.front());
  }
  return advantages;
}

absl::StatusOr<std::vector<std::vector<std::vector<double>>>> ComputeTurnAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::vector<double>>>& returns,
    double epsilon) {
  FRESHET_RETURN_IF_ERROR(CheckEpsilon(epsilon));
  FRESHET_RETURN_IF_ERROR(CheckReturns(kind, returns));
  Returns advantages = returns;
  TurnsByIndex batch;
  std::vector<double*> all;
  for (auto& group : advantages) {
    if (kind == AdvantageKind::kReinforcePp) {
      AddByIndex(group, batch);
      continue;
    }
    TurnsByIndex by_index;
    AddByIndex(group, by_index);
    Center(kind, by_index);
    const std::vector<double*> turns = AllOf(by_index);
    if (kind == AdvantageKind::kGrpo) DivideByDeviation(epsilon, turns);
    if (kind == AdvantageKind::kReinforcePpBaseline) {
      all.insert(all.end(), turns.begin(), turns.end());
    }
  }
  if (kind == AdvantageKind::kReinforcePp) {
    Center(kind, batch);
    all = AllOf(batch);
  }
  DivideByDeviation(epsilon, all);
  return advantages;
}

}  // namespace freshet
