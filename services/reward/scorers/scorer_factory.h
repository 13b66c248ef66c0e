#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/scorers/http_question.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// A function that another process computes.
struct RemoteReward {
  std::string address;      // of the reward service; "": the operator's Python rewards
  std::string function;     // its name there; "": the service's only one
  absl::Duration timeout;   // of a call
  bool sees_group = false;  // sends the group's completions
};

// Creates the scorer of types grpc, math and python. INVALID_ARGUMENT: the process has no Python
// rewards.
using RemoteScorerFactory =
    std::function<absl::StatusOr<std::unique_ptr<Scorer>>(const RemoteReward& reward)>;

// Scorers that ask services, provided by processes that can connect. They open no connection
// themselves. Null: the types that need it are refused.
struct ServiceScorers {
  RemoteScorerFactory remote;
  HttpScorerFactory sandbox;       // type code
  HttpScorerFactory judge;         // type judge
  HttpScorerFactory reward_model;  // type reward_model
};

// The scorer of one component; absent options have their defaults. INVALID_ARGUMENT that starts
// with the bad option's name and gives its value and bound; an option that the type does not use is
// bad. Ignores `weight` and `only_if`.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const job::v1::RewardComponent& options,
                                                   const ServiceScorers& services = {});

// The components of a reward; the default weight is 1. INVALID_ARGUMENT
// "reward.components.NAME.OPTION ..." for the first bad option by name, or if there is no
// component.
absl::StatusOr<std::unique_ptr<CompositeScorer>> MakeCompositeScorer(
    const job::v1::Reward& reward, const ServiceScorers& services = {});

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_
