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

absl::Status CheckRewards(AdvantageKind kind,
                          const std::vector<std::vector<double>>& reward_groups) {
  const size_t smallest = kind == AdvantageKind::kReinforcePp ? 1 : 2;
  size_t samples = 0;
  for (size_t g = 0; g < reward_groups.size(); ++g) {
    const std::vector<double>& group = reward_groups[g];
    if (group.size() < smallest) {
      return InvalidArgument("group ", g, " has ", group.size(),
                             " rewards: this advantage needs at least ", smallest);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (!(std::abs(group[i]) <= kMaxRewardMagnitude)) {
        return InvalidArgument("reward of sample ", i, " of group ", g, " is ", group[i],
                               ": it must be finite and at most 1e30 in magnitude");
      }
    }
    samples += group.size();
  }
  if (samples < 2) {
    return InvalidArgument("the batch has ", samples, " rewards: an advantage needs at least 2");
  }
  return absl::OkStatus();
}

// Turns of the same place in different samples.
using Places = std::vector<std::vector<double*>>;

// Subtracts from every turn the mean of its place (RLOO: of the other samples' turns there).
void Center(AdvantageKind kind, const Places& places) {
  for (const std::vector<double*>& place : places) {
    std::vector<double> values;
    for (const double* value : place) values.push_back(*value);
    values = Centered(values);
    const auto size = static_cast<double>(place.size());
    if (kind == AdvantageKind::kRloo && place.size() > 1) Scale(size / (size - 1), values);
    for (size_t i = 0; i < place.size(); ++i) *place[i] = values[i];
  }
}

void AddPlaces(std::vector<std::vector<double>>& samples, Places& places) {
  for (std::vector<double>& turns : samples) {
    if (places.size() < turns.size()) places.resize(turns.size());
    for (size_t k = 0; k < turns.size(); ++k) places[k].push_back(&turns[k]);
  }
}

void DivideByDeviation(double epsilon, const std::vector<double*>& centered) {
  std::vector<double> values;
  for (const double* value : centered) values.push_back(*value);
  if (values.size() < 2) return;
  DivideByDeviation(values, epsilon, values);
  for (size_t i = 0; i < centered.size(); ++i) *centered[i] = values[i];
}

std::vector<double*> AllOf(const Places& places) {
  std::vector<double*> all;
  for (const std::vector<double*>& place : places)
    all.insert(all.end(), place.begin(), place.end());
  return all;
}

std::vector<double> Concatenated(const std::vector<std::vector<double>>& groups) {
  std::vector<double> all;
  for (const std::vector<double>& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

// Splits `flat` into the shape of `groups`.
std::vector<std::vector<double>> InShapeOf(const std::vector<std::vector<double>>& groups,
                                           std::span<const double> flat) {
  std::vector<std::vector<double>> shaped;
  shaped.reserve(groups.size());
  for (const std::vector<double>& group : groups) {
    shaped.emplace_back(flat.begin(), flat.begin() + static_cast<ptrdiff_t>(group.size()));
    flat = flat.subspan(group.size());
  }
  return shaped;
}

std::vector<double> WithinGroup(AdvantageKind kind, std::span<const double> rewards,
                                double epsilon) {
  std::vector<double> advantages = Centered(rewards);
  if (kind == AdvantageKind::kGrpo) {
    DivideByDeviation(advantages, epsilon, advantages);
  } else if (kind == AdvantageKind::kRloo) {
    // r_i - (S - r_i) / (G - 1) = G / (G - 1) * (r_i - S / G)
    const double size = static_cast<double>(rewards.size());
    Scale(size / (size - 1), advantages);
  }
  return advantages;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> ComputeAdvantages(
    AdvantageKind kind, const std::vector<std::vector<double>>& reward_groups, double epsilon) {
  FRESHET_RETURN_IF_ERROR(CheckEpsilon(epsilon));
  FRESHET_RETURN_IF_ERROR(CheckRewards(kind, reward_groups));
  if (kind == AdvantageKind::kReinforcePp) {
    std::vector<double> flat = Centered(Concatenated(reward_groups));
    DivideByDeviation(flat, epsilon, flat);
    return InShapeOf(reward_groups, flat);
  }
  std::vector<std::vector<double>> advantages;
  advantages.reserve(reward_groups.size());
  for (const std::vector<double>& group : reward_groups) {
    advantages.push_back(WithinGroup(kind, group, epsilon));
  }
  if (kind == AdvantageKind::kReinforcePpBaseline) {
    const std::vector<double> centered = Concatenated(advantages);
    for (std::vector<double>& group : advantages) {
      DivideByDeviation(centered, epsilon, group);
    }
  }
  return advantages;
}

absl::StatusOr<std::vector<std::vector<std::vector<double>>>> ComputeTurnAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::vector<double>>>& values,
    double epsilon) {
  // All limits are those of whole samples; a turn is checked like one.
  std::vector<std::vector<double>> firsts;
  for (const auto& group : values) {
    std::vector<double>& first = firsts.emplace_back();
    for (const std::vector<double>& turns : group) {
      if (turns.empty()) return InvalidArgument("a sample has no turn");
      for (const double value : turns) {
        if (!(std::abs(value) <= kMaxRewardMagnitude)) {
          return InvalidArgument("the value of a turn is ", value,
                                 ": it must be finite and at most 1e30 in magnitude");
        }
      }
      first.push_back(turns.front());
    }
  }
  FRESHET_RETURN_IF_ERROR(CheckEpsilon(epsilon));
  FRESHET_RETURN_IF_ERROR(CheckRewards(kind, firsts));
  std::vector<std::vector<std::vector<double>>> advantages = values;
  Places batch;
  std::vector<double*> all;
  for (auto& group : advantages) {
    if (kind == AdvantageKind::kReinforcePp) {
      AddPlaces(group, batch);
      continue;
    }
    Places places;
    AddPlaces(group, places);
    Center(kind, places);
    const std::vector<double*> turns = AllOf(places);
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
