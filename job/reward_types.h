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

// How an error names the component that failed, and which has failed `failures` times in a row.
inline constexpr std::string_view kFailsAlways = ", which has failed 16 times or more in a row";
inline std::string FailedComponent(const std::string& name, int64_t failures) {
  return StrCat("component ", name, failures >= 16 ? kFailsAlways : "");
}
// The component that `error` names as one that has failed 16 times or more in a row; "" if none.
inline std::string ComponentThatFailsAlways(const std::string& error) {
  constexpr std::string_view kBefore = "component ";
  const size_t begin = error.find(kBefore);
  const size_t end = error.find(kFailsAlways);
  if (begin == std::string::npos || end == std::string::npos || begin > end) return "";
  return error.substr(begin + kBefore.size(), end - begin - kBefore.size());
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
