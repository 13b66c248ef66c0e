#ifndef FRESHET_JOB_REWARD_TYPES_H_
#define FRESHET_JOB_REWARD_TYPES_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "base/str_cat.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Whether components of this type are scored by another process, which a call asks.
inline bool IsRewardService(std::string_view type) {
  return type == "grpc" || type == "math" || type == "python" || type == "code" ||
         type == "judge" || type == "reward_model";
}

// Fields of a judge's or reward model's text that are not the row's: the completion; and of a
// judge's, one to compare it with and the others of its group.
inline constexpr std::string_view kResponseField = "response";
inline constexpr std::string_view kOtherField = "other";
inline constexpr std::string_view kOthersField = "others";

// Whether {field} in the text of a component of this type is a field of the row. {prompt} is the
// sample's prompt.
inline bool IsRowField(std::string_view type, std::string_view field) {
  if (type == "reward_model" && field == kResponseField) return false;
  if (type == "judge" &&
      (field == kResponseField || field == kOtherField || field == kOthersField)) {
    return false;
  }
  return field != "prompt";
}

// Whether the component needs the completions of all samples of a group.
inline bool SeesGroup(const job::v1::RewardComponent& component) {
  return component.group() || component.pairwise() ||
         (component.type() == "judge" && component.text().find("{others}") != std::string::npos);
}

// The budget, in tokens, of a `length` component of shape budget from its resolved text; nullopt
// unless that is a whole number from 1 to kMaxTokenBudget.
inline constexpr int64_t kMaxTokenBudget = 1048576;  // as of max_tokens
inline std::optional<int64_t> ParseTokenBudget(const std::string& text) {
  int64_t budget = 0;
  const bool valid = absl::SimpleAtoi(text, &budget) && budget >= 1 && budget <= kMaxTokenBudget;
  return valid ? std::optional(budget) : std::nullopt;
}
// What is wrong with such a text, and the fix.
inline std::string BudgetError() {
  return StrCat("the row's budget is not a whole number of tokens from 1 to ", kMaxTokenBudget,
                "; correct the row, or the component's text");
}

// This many failures in a row, or groups that died in a row, are no coincidence.
inline constexpr int64_t kManyFailures = 16;

// A component of the reward and how often it has failed in a row in one reward process.
struct FailingComponent {
  std::string name;
  int64_t failures = 0;
};
inline constexpr std::string_view kComponent = "component ";
inline constexpr std::string_view kHasFailed = ", which has failed ";
inline constexpr std::string_view kTimesInARow = " times in a row";

// How an error begins that names the component that failed: "component NAME", and from
// kManyFailures on ", which has failed N times in a row".
inline std::string FailedComponent(const FailingComponent& failing) {
  const std::string begin = StrCat(kComponent, failing.name);
  if (failing.failures < kManyFailures) return begin;
  return StrCat(begin, kHasFailed, failing.failures, kTimesInARow);
}
// The component of an error that begins so; nullopt if it has failed less than kManyFailures times.
inline std::optional<FailingComponent> ParseFailingComponent(const std::string& error) {
  const size_t end = error.find(kHasFailed);
  if (!error.starts_with(kComponent) || end == std::string::npos) return std::nullopt;
  FailingComponent failing{error.substr(kComponent.size(), end - kComponent.size())};
  // Otherwise the rest is of the component's own text.
  if (failing.name.find_first_of(": ") != std::string::npos) return std::nullopt;
  const size_t number = end + kHasFailed.size();
  const size_t after = error.find(kTimesInARow, number);
  if (after == std::string::npos ||
      !absl::SimpleAtoi(error.substr(number, after - number), &failing.failures)) {
    return std::nullopt;
  }
  return failing;
}

// Why a component's server is not called again, and the fix.
inline std::string CallsUsedUp(std::string_view component, int64_t max_calls) {
  return StrCat("reward.components.", component, ".max_calls: all ", max_calls,
                " calls are used; raise it and resume");
}

// What is wrong with `only_if` of the component called `name`; "" if nothing.
inline std::string OnlyIfError(const job::v1::Reward& reward, const std::string& name) {
  const job::v1::RewardComponent& component = reward.components().at(name);
  if (!component.has_only_if()) return "";
  const auto found = reward.components().find(component.only_if());
  if (found == reward.components().end() || found->first == name) {
    return StrCat("must name another component, got '", component.only_if(), "'");
  }
  if (found->second.has_only_if()) {
    return StrCat("must name a component without only_if; '", found->first, "' has one");
  }
  const auto& tasks = found->second.tasks();
  const auto scored = [&tasks](const std::string& task) {
    return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
  };
  const auto& own = component.tasks();
  if (!tasks.empty() && (own.empty() || !std::all_of(own.begin(), own.end(), scored))) {
    return StrCat("'", found->first, "' does not score all tasks of this component");
  }
  return "";
}

}  // namespace freshet

#endif  // FRESHET_JOB_REWARD_TYPES_H_
