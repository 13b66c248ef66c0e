#include "controller/kubernetes/kubernetes_scaler.h"

#include "controller/kubernetes/kubernetes_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/kubernetes/fake_http.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class KubernetesScalerTest : public testing::Test {
 protected:
  FakeHttp http_;
  KubernetesApi api_{http_, "ml"};
  FakeClock clock_;
  KubernetesScaler scaler_{
      api_,
      *ParseScaleTargets({"rollout/default=deployments/engines",
                          "rollout/big=leaderworkersets/groups", "reward=deployments/reward"}),
      clock_};
};

TEST_F(KubernetesScalerTest, AsksKubernetesForTheNumber) {
  const auto before = scaler_.SetWanted("rollout", "", 6, Surplus::kDrains);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(*before, 2);
  ASSERT_EQ(http_.calls.size(), 2U);
  EXPECT_EQ(http_.calls[1].method, "PATCH");
  EXPECT_EQ(http_.calls[1].body, "{\"spec\":{\"replicas\":6}}");
  ASSERT_TRUE(scaler_.SetWanted("rollout", "big", 0, Surplus::kDrains).ok());
  EXPECT_THAT(http_.calls.back().path, HasSubstr("/leaderworkersets/groups/scale"));
}

TEST_F(KubernetesScalerTest, CountsWorkersWhereKubernetesCountsGroups) {
  KubernetesScaler scaler{api_, *ParseScaleTargets({"rollout/big=leaderworkersets/groups*4"}),
                          clock_};
  EXPECT_THAT(scaler.Wanted(), ElementsAre(Pair("rollout/big", 8)));
  const auto before = scaler.SetWanted("rollout", "big", 12, Surplus::kDrains);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(*before, 8);
  EXPECT_THAT(http_.calls.back().path, HasSubstr("/leaderworkersets/groups/scale"));
  EXPECT_EQ(http_.calls.back().body, "{\"spec\":{\"replicas\":3}}");
  EXPECT_THAT(scaler.Wanted(), ElementsAre(Pair("rollout/big", 12)));
  http_.calls.clear();
  const auto part = scaler.SetWanted("rollout", "big", 6, Surplus::kDrains);
  EXPECT_EQ(part.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(part.status().message()), HasSubstr("take 4 or 8"));
  EXPECT_THAT(http_.calls, IsEmpty());
}

TEST_F(KubernetesScalerTest, WhatItMayNotScaleIsRefusedWithTheField) {
  const auto message = [](const absl::StatusOr<int32_t>& result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(message(scaler_.SetWanted("env", "", 1, Surplus::kDrains)),
              HasSubstr("role: env is not a workload"));
  EXPECT_THAT(message(scaler_.SetWanted("rollout", "other", 1, Surplus::kDrains)),
              HasSubstr("pool: rollout/other is not a workload"));
  EXPECT_THAT(message(scaler_.SetWanted("trainer", "", 1, Surplus::kDrains)), HasSubstr("role: "));
  EXPECT_THAT(message(scaler_.SetWanted("model", "", 1, Surplus::kDrains)),
              HasSubstr("role: model servers are not scaled"));
  EXPECT_THAT(message(scaler_.SetWanted("rollout", "", -1, Surplus::kDrains)),
              HasSubstr("replicas: "));
  EXPECT_THAT(message(scaler_.SetWanted("rollout", "", 1, Surplus::kStays)),
              HasSubstr("keep_workers: "));
  EXPECT_THAT(http_.calls, IsEmpty());
}

TEST_F(KubernetesScalerTest, ErrorsOfKubernetesAreTheAnswer) {
  http_.answer = [](const HttpCall& call) {
    return HttpReply{call.method == "GET" ? 200 : 403,
                     "{\"message\": \"forbidden\", \"spec\": {}}"};
  };
  const auto result = scaler_.SetWanted("reward", "", 3, Surplus::kDrains);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("HTTP 403: forbidden"));
}

TEST_F(KubernetesScalerTest, TellsTheNumbersAndAsksNowAndThen) {
  EXPECT_THAT(scaler_.Wanted(),
              ElementsAre(Pair("reward", 2), Pair("rollout", 2), Pair("rollout/big", 2)));
  EXPECT_EQ(http_.calls.size(), 3U);
  scaler_.Wanted();
  EXPECT_EQ(http_.calls.size(), 3U);
  clock_.Advance(absl::Seconds(3));
  http_.answer = [](const HttpCall&) { return HttpReply{200, "{\"spec\": {\"replicas\": 9}}"}; };
  EXPECT_EQ(scaler_.Wanted().at("rollout"), 9);
}

TEST_F(KubernetesScalerTest, WhileNobodyAnswersTheLastNumbersStay) {
  scaler_.Wanted();
  clock_.Advance(absl::Seconds(3));
  http_.answer = [](const HttpCall&) { return absl::UnavailableError("no connection"); };
  http_.calls.clear();
  EXPECT_EQ(scaler_.Wanted().at("rollout"), 2);
  EXPECT_EQ(http_.calls.size(), 1U) << "one failure is enough";
  clock_.Advance(absl::Seconds(9));
  scaler_.Wanted();
  EXPECT_EQ(http_.calls.size(), 1U);
  clock_.Advance(absl::Seconds(2));
  scaler_.Wanted();
  EXPECT_EQ(http_.calls.size(), 2U);
}

TEST(KubernetesOfPod, FindsTheServerAndTheAccount) {
  const auto in_pod = [](const std::string& host) {
    return [host](const char* name) {
      return std::string(name) == "KUBERNETES_SERVICE_HOST" ? host : std::string("443");
    };
  };
  const auto options = KubernetesOfPod("ml", in_pod("10.0.0.1"));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->server, "https://10.0.0.1:443");
  EXPECT_EQ(options->token_file, "/var/run/secrets/kubernetes.io/serviceaccount/token");
  EXPECT_EQ(KubernetesOfPod("ml", in_pod("fd00::1"))->server, "https://[fd00::1]:443");
  EXPECT_FALSE(KubernetesOfPod("ml", in_pod("")).ok());
  EXPECT_FALSE(KubernetesOfPod("../x", in_pod("10.0.0.1")).ok());
}

}  // namespace
}  // namespace freshet
