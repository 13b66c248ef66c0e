#include "datastore/curation_policy.h"

#include <algorithm>
#include <cmath>

#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kMaxReplayOption = 1'000'000;

absl::Status CheckReplayRange(const char* name, int64_t value) {
  if (value >= 1 && value <= kMaxReplayOption) return absl::OkStatus();
  return InvalidArgument(name, ": ", value, " is out of range: use 1 to ", kMaxReplayOption);
}

}  // namespace

std::string_view DecideFilter(const RewardFilter& filter, const std::vector<double>& rewards) {
  double sum = 0;
  for (const double reward : rewards) sum += reward;
  const double mean = sum / static_cast<double>(rewards.size());
  if (filter.min_mean.has_value() && mean < *filter.min_mean) return "too_hard";
  if (filter.max_mean.has_value() && mean > *filter.max_mean) return "too_easy";
  const bool equal = std::all_of(rewards.begin(), rewards.end(),
                                 [&](double reward) { return reward == rewards.front(); });
  return filter.zero_variance && equal ? "zero_variance" : "";
}

std::string FilteredText(int64_t filtered) {
  return StrCat(
      "the last ", filtered,
      " groups were filtered: their rewards are equal, or too low or too high on average");
}

std::string FilteredCounts(const std::vector<std::pair<std::string, int64_t>>& ended) {
  constexpr std::string_view kFiltered = "filtered(";
  std::string counts;
  for (const auto& [label, groups] : ended) {
    if (!label.starts_with(kFiltered)) continue;
    counts +=
        StrCat(counts.empty() ? " (in the whole job: " : ", ",
               label.substr(kFiltered.size(), label.size() - kFiltered.size() - 1), " ", groups);
  }
  if (!counts.empty()) counts += ")";
  return StrCat(counts, "; look at the samples, then change the dataset, the reward or filter");
}

absl::Status ReplayOptions::Validate() const {
  absl::Status status = CheckReplayRange("replay.max_age", max_age);
  if (status.ok()) status = CheckReplayRange("replay.capacity", capacity);
  if (status.ok()) status = CheckReplayRange("replay.max_successes", max_successes);
  if (status.ok() && !std::isfinite(min_reward)) {
    status = InvalidArgument("replay.min_reward: ", min_reward, " is not finite");
  }
  return status;
}

ReplayDecision DecideReplay(const ReplayOptions& replay, const std::vector<double>& rewards) {
  int64_t successes = 0;
  size_t best = 0;
  size_t worst = 0;
  for (size_t i = 0; i < rewards.size(); ++i) {
    successes += rewards[i] >= replay.min_reward ? 1 : 0;
    if (rewards[i] > rewards[best]) best = i;
    if (rewards[i] <= rewards[worst]) worst = i;
  }
  ReplayDecision decision;
  if (successes == 0) {
    decision.replace = static_cast<int32_t>(worst);
  } else if (successes <= replay.max_successes) {
    decision.keep = static_cast<int32_t>(best);
  }
  return decision;
}

bool MayReplay(const StalenessOptions& staleness, const ReplayOptions& replay,
               const GroupAge& group, int64_t oldest) {
  const bool mask = staleness.disposition == Disposition::kMask;
  const int64_t latest = (mask ? group.max_version : group.min_version) + staleness.max;
  return latest - oldest <= replay.max_age;
}

}  // namespace freshet
