// Decisions of the authorization policies that the chart installs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/runtime/authorization_policy.h"
#include "tests/testing/chart_policy.h"

namespace freshet::runtime {
namespace {

const std::vector<std::string> kRoles = {"controller", "rollout", "reward", "env", "trainer"};

AuthorizationPolicy PolicyOf(const std::string& role) {
  const auto policy = ParseAuthorizationPolicy(ChartPolicy(role));
  EXPECT_TRUE(policy.ok()) << role << ": " << policy.status();
  return policy.value_or(AuthorizationPolicy());
}

// Whether the policy of `callee` allows a call of `path`.
bool Allows(const std::string& callee, const std::vector<std::string>& principals,
            const std::string& path) {
  return DecideAuthorization(PolicyOf(callee), principals, path).allowed;
}
bool MemberMay(const std::string& caller, const std::string& callee, const std::string& path) {
  return Allows(callee, {ChartName(caller)}, path);
}
// A user's call: the users' shared certificate plus the role from the token.
bool UserMay(const std::string& role, const std::string& method) {
  std::vector<std::string> principals = {ChartName("user")};
  if (!role.empty()) principals.insert(principals.end(), {"user:ann", "role:" + role});
  return Allows("controller", principals, "/freshet.job.v1.JobService/" + method);
}

TEST(ChartPolicies, AreReadAndAllowNothingToStrangers) {
  const std::vector<std::vector<std::string>> strangers = {
      {}, {"stranger.rl.svc"}, {ChartName("user")}};
  for (const std::string& role : kRoles) {
    const AuthorizationPolicy policy = PolicyOf(role);
    EXPECT_EQ(policy.name, role);
    EXPECT_TRUE(DecideAuthorization(policy, {"anybody"}, "/grpc.health.v1.Health/Check").allowed);
    for (const AuthorizationRule& rule : policy.allow_rules) {
      for (const StringPattern& path : rule.paths) {
        EXPECT_EQ(path.kind, StringPattern::Kind::kExact) << role << " " << rule.name;
        if (path.text.find("grpc.health") != std::string::npos) continue;
        for (const auto& names : strangers) {
          EXPECT_FALSE(DecideAuthorization(policy, names, path.text).allowed) << path.text;
        }
      }
    }
  }
}

TEST(ChartPolicies, UsersUseEnginesByTheirRole) {
  const auto may = [](const std::string& role, const std::string& method) {
    return Allows("rollout", {ChartName("user"), "user:ann", "role:" + role},
                  "/freshet.rollout.v1.RolloutService/" + method);
  };
  for (const char* role : {"viewer", "submitter", "admin"}) {
    EXPECT_TRUE(may(role, "GetStats")) << role;
    EXPECT_EQ(may(role, "Generate"), role != std::string("viewer")) << role;
    EXPECT_EQ(may(role, "Pause"), role == std::string("admin")) << role;
    EXPECT_EQ(may(role, "Resume"), role == std::string("admin")) << role;
  }
}

TEST(ChartPolicies, MembersMayCallWhatTheyNeedAndNoMore) {
  const std::string worker = "/freshet.cluster.v1.WorkerService/";
  const std::string weights = "/freshet.weights.v1.WeightService/";
  for (const char* role : {"rollout", "reward", "env", "trainer"}) {
    for (const char* method : {"Register", "Heartbeat", "Deregister"}) {
      EXPECT_TRUE(MemberMay(role, "controller", worker + method)) << role << method;
    }
    EXPECT_FALSE(MemberMay(role, "controller", "/freshet.job.v1.JobService/Submit")) << role;
    EXPECT_FALSE(MemberMay(role, "controller", "/freshet.job.v1.JobService/List")) << role;
  }
  EXPECT_TRUE(MemberMay("rollout", "controller", worker + "FetchRows"));
  EXPECT_TRUE(MemberMay("trainer", "controller", worker + "FetchRows"));
  EXPECT_FALSE(MemberMay("reward", "controller", worker + "FetchRows"));
  EXPECT_TRUE(MemberMay("trainer", "rollout", weights + "Activate"));
  EXPECT_TRUE(MemberMay("trainer", "rollout", weights + "PrepareShared"));
  EXPECT_TRUE(MemberMay("trainer", "rollout", weights + "PrepareBroadcast"));
  EXPECT_FALSE(MemberMay("rollout", "rollout", weights + "PrepareBroadcast"));
  EXPECT_TRUE(MemberMay("rollout", "rollout", weights + "Prepare"));
  EXPECT_TRUE(MemberMay("rollout", "rollout", weights + "Pull"));
  EXPECT_FALSE(MemberMay("rollout", "rollout", weights + "Activate"));
  EXPECT_FALSE(MemberMay("controller", "rollout", weights + "Activate"));
  EXPECT_TRUE(MemberMay("rollout", "trainer", weights + "Pull"));
  EXPECT_FALSE(MemberMay("rollout", "trainer", weights + "Prepare"));
  EXPECT_TRUE(MemberMay("rollout", "env", "/freshet.env.v1.EnvService/Episode"));
  EXPECT_FALSE(MemberMay("trainer", "env", "/freshet.env.v1.EnvService/Episode"));
  EXPECT_FALSE(MemberMay("controller", "reward", "/freshet.reward.v1.RewardService/Score"));
  EXPECT_FALSE(MemberMay("rollout", "reward", "/freshet.reward.v1.RewardService/Score"));
  EXPECT_TRUE(
      MemberMay("controller", "trainer", "/freshet.trainer.v1.TrainerService/DescribeModel"));
  EXPECT_FALSE(
      MemberMay("rollout", "trainer", "/freshet.trainer.v1.TrainerService/DeleteJobFiles"));
  EXPECT_TRUE(MemberMay("trainer", "trainer", "/freshet.trainer.v1.RankService/Join"));
  EXPECT_FALSE(MemberMay("rollout", "trainer", "/freshet.trainer.v1.RankService/Join"));
  EXPECT_TRUE(MemberMay("keda", "controller", "/externalscaler.ExternalScaler/IsActive"));
  EXPECT_FALSE(MemberMay("keda", "controller", "/freshet.job.v1.JobService/Scale"));
}

TEST(ChartPolicies, RolesOfUsersContainEachOther) {
  for (const char* method : {"Get", "List", "Watch", "Logs", "GetCluster", "ListSamples"}) {
    for (const char* role : {"viewer", "submitter", "admin"}) {
      EXPECT_TRUE(UserMay(role, method)) << role << method;
    }
    EXPECT_FALSE(UserMay("", method)) << method;
  }
  // Validate opens the files named in the caller's job.
  for (const char* method :
       {"Submit", "Validate", "Pause", "Resume", "Cancel", "ExportCheckpoint"}) {
    EXPECT_FALSE(UserMay("viewer", method)) << method;
    EXPECT_TRUE(UserMay("submitter", method)) << method;
    EXPECT_TRUE(UserMay("admin", method)) << method;
  }
  for (const char* method : {"Delete", "Scale"}) {
    EXPECT_FALSE(UserMay("viewer", method)) << method;
    EXPECT_FALSE(UserMay("submitter", method)) << method;
    EXPECT_TRUE(UserMay("admin", method)) << method;
  }
}

TEST(ChartPolicies, AStandbyPassesOnWhatItsCallerMay) {
  const std::string jobs = "/freshet.job.v1.JobService/";
  for (const char* method : {"Submit", "Get", "Delete", "Scale", "Logs", "GetCluster"}) {
    EXPECT_TRUE(MemberMay("controller", "controller", jobs + method)) << method;
  }
  EXPECT_FALSE(MemberMay("controller", "controller", "/freshet.cluster.v1.WorkerService/Register"));
}

}  // namespace
}  // namespace freshet::runtime
