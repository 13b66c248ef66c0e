#include "services/reward/scorers/scorer_factory.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/reward_types.h"
#include "services/reward/scorers/basic_scorers.h"
#include "services/reward/scorers/code_tests.h"
#include "services/reward/scorers/judge_question.h"
#include "services/reward/scorers/regex_scorer.h"
#include "services/reward/scorers/reward_model_question.h"

namespace freshet {
namespace {

using job::v1::RewardComponent;

constexpr char kTypes[] =
    "exact_match, numeric, contains, regex, length, math, code, judge, reward_model, "
    "python, grpc or environment";
// The name of Math-Verify among the operator's Python rewards.
constexpr char kMathFunction[] = "math";

absl::StatusOr<std::unique_ptr<Scorer>> MakeRegex(const RewardComponent& options) {
  if (!options.has_pattern()) {
    return InvalidArgument("pattern is missing; give a regular expression");
  }
  const std::string match = options.has_match() ? options.match() : "search";
  if (match != "search" && match != "whole") {
    return InvalidArgument("match is '", match, "'; use search or whole");
  }
  return RegexScorer::Create(
      options.pattern(),
      match == "whole" ? RegexScorer::Match::kWhole : RegexScorer::Match::kSearch,
      options.ignore_case());
}

// The time of a call to a service.
absl::StatusOr<absl::Duration> CallTime(const RewardComponent& options) {
  const int64_t timeout_ms = options.has_timeout_ms() ? options.timeout_ms() : 1000;
  if (timeout_ms < 1) return InvalidArgument("timeout_ms is ", timeout_ms, "; it must be >= 1");
  return absl::Milliseconds(timeout_ms);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeRemote(const RewardComponent& options,
                                                   const RemoteScorerFactory& remote) {
  if (options.type() == "grpc" && !options.has_address()) {
    return InvalidArgument("address is missing; give HOST:PORT of a reward service");
  }
  if (options.type() == "python" && !options.has_function()) {
    return InvalidArgument("function is missing; name one that the operator offers");
  }
  FRESHET_ASSIGN_OR_RETURN(const absl::Duration timeout, CallTime(options));
  if (!remote) {
    return InvalidArgument("type ", options.type(), ": this process cannot ask reward services");
  }
  return remote({options.address(), options.type() == "math" ? kMathFunction : options.function(),
                 timeout, options.group()});
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeCode(const RewardComponent& options,
                                                 const HttpScorerFactory& make) {
  CodeReward reward;
  reward.language = options.has_language() ? options.language() : "python";
  reward.tests = options.has_text() ? options.text() : "{tests}";
  reward.fraction = options.grading() == "fraction";
  reward.test_time =
      absl::Milliseconds(options.has_test_timeout_ms() ? options.test_timeout_ms() : 5000);
  FRESHET_ASSIGN_OR_RETURN(const absl::Duration timeout, CallTime(options));
  FRESHET_ASSIGN_OR_RETURN(HttpQuestion question, CodeQuestion(std::move(reward)));
  if (!make) return InvalidArgument("type code: this process cannot ask a sandbox");
  return make(std::move(question), timeout);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeJudge(const RewardComponent& options,
                                                  const HttpScorerFactory& make) {
  if (!options.has_model()) return InvalidArgument("model is missing; name one of the judge's");
  if (!options.has_text()) return InvalidArgument("text is missing; give the judge's task");
  if ((!options.criteria().empty() || options.pairwise()) && options.has_max_score()) {
    return InvalidArgument("max_score has no effect with criteria or pairwise; leave it out");
  }
  JudgeReward reward;
  reward.model = options.model();
  reward.text = options.text();
  reward.criteria = {options.criteria().begin(), options.criteria().end()};
  if (options.has_max_score()) reward.max_score = options.max_score();
  if (options.has_max_answer_tokens()) reward.max_tokens = options.max_answer_tokens();
  if (options.has_structured_output()) reward.structured = options.structured_output();
  reward.pairwise = options.pairwise();
  FRESHET_ASSIGN_OR_RETURN(const absl::Duration timeout, CallTime(options));
  FRESHET_ASSIGN_OR_RETURN(HttpQuestion question, JudgeQuestion(std::move(reward)));
  if (!make) return InvalidArgument("type judge: this process cannot ask a judge");
  return make(std::move(question), timeout);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeRewardModel(const RewardComponent& options,
                                                        const HttpScorerFactory& make) {
  if (!options.has_model()) return InvalidArgument("model is missing; name one of the server's");
  FRESHET_ASSIGN_OR_RETURN(const absl::Duration timeout, CallTime(options));
  FRESHET_ASSIGN_OR_RETURN(HttpQuestion question,
                           RewardModelQuestion({options.model(), options.text()}));
  if (!make) return InvalidArgument("type reward_model: this process cannot ask a reward model");
  return make(std::move(question), timeout);
}

struct ScorerType {
  std::set<std::string> used;  // option names
  std::function<absl::StatusOr<std::unique_ptr<Scorer>>(const RewardComponent&)> make;
};

const std::map<std::string, ScorerType>& LocalTypes() {
  static const auto& types = *new std::map<std::string, ScorerType>{
      {"exact_match", {{"text", "ignore_case", "strip_space"}, MakeExactMatchScorer}},
      {"numeric", {{"text", "place", "tolerance"}, MakeNumericScorer}},
      {"contains", {{"text", "min_count", "ignore_case"}, MakeContainsScorer}},
      {"regex", {{"pattern", "match", "ignore_case"}, MakeRegex}},
      {"length",
       {{"shape", "text", "min_tokens", "max_tokens", "margin_tokens"}, MakeLengthScorer}},
      {"environment", {{}, MakeEnvironmentScorer}},
  };
  return types;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const RewardComponent& options,
                                                   const ServiceScorers& services) {
  ScorerType type;
  if (options.type() == "code") {
    type.used = {"timeout_ms", "text", "language", "grading", "test_timeout_ms"};
    type.make = [&services](const RewardComponent& component) {
      return MakeCode(component, services.sandbox);
    };
  } else if (options.type() == "judge") {
    type.used = {"timeout_ms",        "text",      "model",
                 "criteria",          "max_score", "max_answer_tokens",
                 "structured_output", "pairwise",  "max_calls"};
    type.make = [&services](const RewardComponent& component) {
      return MakeJudge(component, services.judge);
    };
  } else if (options.type() == "reward_model") {
    type.used = {"timeout_ms", "text", "model", "max_calls"};
    type.make = [&services](const RewardComponent& component) {
      return MakeRewardModel(component, services.reward_model);
    };
  } else if (IsRewardService(options.type())) {
    type.used = {"timeout_ms"};
    if (options.type() == "grpc") type.used.insert("address");
    if (options.type() == "python") type.used.insert("function");
    if (options.type() != "math") type.used.insert("group");
    type.make = [&services](const RewardComponent& component) {
      return MakeRemote(component, services.remote);
    };
  } else {
    const auto found = LocalTypes().find(options.type());
    if (found == LocalTypes().end()) {
      return InvalidArgument("type is '", options.type(), "'; use ", kTypes);
    }
    type = found->second;
  }
  // Options that the type would silently ignore.
  std::vector<const google::protobuf::FieldDescriptor*> given;
  options.GetReflection()->ListFields(options, &given);
  for (const auto* field : given) {
    const bool of_all = field->name() == "type" || field->name() == "weight" ||
                        field->name() == "tasks" || field->name() == "only_if";
    if (!of_all && !type.used.contains(field->name())) {
      return InvalidArgument(field->name(), " has no effect with type ", options.type(),
                             "; leave it out");
    }
  }
  return type.make(options);
}

absl::StatusOr<std::unique_ptr<CompositeScorer>> MakeCompositeScorer(
    const job::v1::Reward& reward, const ServiceScorers& services) {
  if (reward.components().empty()) {
    return InvalidArgument("reward.components is empty; name at least one scorer");
  }
  auto result = std::make_unique<CompositeScorer>();
  const std::map<std::string, RewardComponent> by_name(reward.components().begin(),
                                                       reward.components().end());
  for (const auto& [name, options] : by_name) {
    if (name.empty()) {
      return InvalidArgument("reward.components: a component has an empty name; name it");
    }
    const double weight = options.has_weight() ? options.weight() : 1.0;
    if (!std::isfinite(weight)) {
      return InvalidArgument("reward.components.", name, ".weight is ", weight,
                             "; it must be a finite number");
    }
    const std::string only_if = OnlyIfError(reward, name);
    if (!only_if.empty()) {
      return InvalidArgument("reward.components.", name, ".only_if ", only_if);
    }
    absl::StatusOr<std::unique_ptr<Scorer>> scorer = MakeScorer(options, services);
    if (!scorer.ok()) {
      return InvalidArgument("reward.components.", name, ".", Message(scorer.status()));
    }
    result->Add(
        name, weight, *std::move(scorer),
        {{options.tasks().begin(), options.tasks().end()}, options.only_if(), options.max_calls()});
  }
  return result;
}

}  // namespace freshet
