#include "controller/kubernetes/kubernetes_api.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/kubernetes/fake_http.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr absl::Duration kDeadline = absl::Seconds(3);

class KubernetesApiTest : public testing::Test {
 protected:
  // Result of GetReplicas for this answer of the server.
  absl::StatusOr<int32_t> Replicas(int status, const std::string& body) {
    http_.answer = [=](const HttpCall&) { return HttpReply{status, body}; };
    return api_.GetReplicas(engines_, kDeadline);
  }

  FakeHttp http_;
  KubernetesApi api_{http_, "ml"};
  const ScaleTarget engines_{ScaleTarget::Resource::kDeployment, "engines"};
};

TEST_F(KubernetesApiTest, ReadsTheScaleOfAWorkload) {
  EXPECT_EQ(*Replicas(200, "{\"kind\": \"Scale\", \"spec\": {\"replicas\": 12}}"), 12);
  EXPECT_EQ(http_.calls[0].method, "GET");
  EXPECT_EQ(http_.calls[0].path, "/apis/apps/v1/namespaces/ml/deployments/engines/scale");
  EXPECT_EQ(http_.calls[0].body, "");
  EXPECT_EQ(http_.calls[0].deadline, kDeadline);
  EXPECT_LE(http_.calls[0].max_reply_bytes, size_t{1} << 20);
  EXPECT_EQ(*Replicas(200, "{\"spec\": {}}"), 0) << "Kubernetes leaves out a 0";
  ASSERT_TRUE(
      api_.GetReplicas({ScaleTarget::Resource::kLeaderWorkerSet, "groups"}, kDeadline).ok());
  EXPECT_EQ(http_.calls.back().path,
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/leaderworkersets/groups/scale");
}

TEST_F(KubernetesApiTest, PatchesTheScaleAndTheDeletionCost) {
  ASSERT_TRUE(api_.SetReplicas(engines_, 5, kDeadline).ok());
  EXPECT_EQ(http_.calls[0].method, "PATCH");
  EXPECT_EQ(http_.calls[0].path, "/apis/apps/v1/namespaces/ml/deployments/engines/scale");
  EXPECT_EQ(http_.calls[0].content_type, "application/merge-patch+json");
  EXPECT_EQ(http_.calls[0].body, "{\"spec\":{\"replicas\":5}}");
  ASSERT_TRUE(api_.SetDeletionCost("engines-0", 17, kDeadline).ok());
  EXPECT_EQ(http_.calls[1].path, "/api/v1/namespaces/ml/pods/engines-0");
  EXPECT_EQ(http_.calls[1].body,
            "{\"metadata\":{\"annotations\":{\"controller.kubernetes.io/pod-deletion-cost\":"
            "\"17\"}}}");
}

TEST_F(KubernetesApiTest, AWorkerCannotNameAnotherPath) {
  for (const char* pod : {"", "../secrets/x", "a/b", "A", "a?b", "-a", "a%2e", "a..b"}) {
    EXPECT_EQ(api_.SetDeletionCost(pod, 1, kDeadline).code(), absl::StatusCode::kInvalidArgument)
        << pod;
  }
  EXPECT_TRUE(http_.calls.empty());
}

TEST_F(KubernetesApiTest, ErrorsNameTheCallAndWhatTheServerSays) {
  const struct {
    int status;
    absl::StatusCode code;
  } cases[] = {{400, absl::StatusCode::kInvalidArgument},
               {401, absl::StatusCode::kFailedPrecondition},
               {403, absl::StatusCode::kFailedPrecondition},
               {404, absl::StatusCode::kNotFound},
               {409, absl::StatusCode::kAborted},
               {422, absl::StatusCode::kInvalidArgument},
               {429, absl::StatusCode::kResourceExhausted},
               {500, absl::StatusCode::kUnavailable},
               {503, absl::StatusCode::kUnavailable},
               {302, absl::StatusCode::kInternal}};
  for (const auto& [status, code] : cases) {
    const auto read = Replicas(status, "{\"kind\": \"Status\", \"message\": \"not\\ntoday\"}");
    EXPECT_EQ(read.status().code(), code) << status;
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr("kubernetes: GET /apis/apps/v1/namespaces/ml/deployments/engines"),
                      HasSubstr(StrCat("HTTP ", status, ": not today"))));
  }
  EXPECT_THAT(std::string(Replicas(403, "").status().message()),
              HasSubstr("service account needs get and patch"));
  EXPECT_THAT(std::string(Replicas(503, std::string(1000, '[')).status().message()),
              Not(HasSubstr("[")));
  http_.answer = [](const HttpCall&) { return absl::DeadlineExceededError("no answer in time"); };
  const absl::Status late = api_.SetReplicas(engines_, 1, kDeadline);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), AllOf(HasSubstr("PATCH"), HasSubstr("no answer")));
}

TEST_F(KubernetesApiTest, AnswersThatAreNoScaleAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{}"), std::string("{\"spec\": 1}"),
        std::string("{\"spec\": {\"replicas\": -1}}"),
        std::string("{\"spec\": {\"replicas\": 1.5}}"),
        std::string("{\"spec\": {\"replicas\": \"3\"}}"),
        std::string("{\"spec\": {\"replicas\": 99999999999}}"), std::string("{\"spec\""),
        "{\"spec\": {\"replicas\": 3}, \"x\": " + std::string(100, '[') + std::string(100, ']') +
            "}"}) {
    EXPECT_EQ(Replicas(200, body).status().code(), absl::StatusCode::kDataLoss) << body;
  }
}

TEST(ScaleTargets, AreReadFromFlags) {
  const auto targets = ParseScaleTargets({"rollout/default=deployments/f-rollout-default",
                                          "rollout/big=leaderworkersets/f-big",
                                          "rollout/wide=leaderworkersets/f-wide*8",
                                          "reward=deployments/f-reward", "env=deployments/f-env"});
  ASSERT_TRUE(targets.ok()) << targets.status();
  using Resource = ScaleTarget::Resource;
  EXPECT_THAT(
      *targets,
      ElementsAre(Pair("env", ScaleTarget{Resource::kDeployment, "f-env"}),
                  Pair("reward", ScaleTarget{Resource::kDeployment, "f-reward"}),
                  Pair("rollout", ScaleTarget{Resource::kDeployment, "f-rollout-default"}),
                  Pair("rollout/big", ScaleTarget{Resource::kLeaderWorkerSet, "f-big"}),
                  Pair("rollout/wide", ScaleTarget{Resource::kLeaderWorkerSet, "f-wide", 8})));
}

TEST(ScaleTargets, WhatIsNoneIsNamed) {
  for (const char* text :
       {"", "rollout", "rollout/default", "rollout/default=f", "rollout=deployments/f",
        "rollout/=deployments/f", "trainer=deployments/f", "reward=statefulsets/f",
        "reward=deployments/", "reward=deployments/F", "reward=deployments/a/b",
        "reward=deployments/../pods/x", "reward=deployments/f*2", "rollout/a=leaderworkersets/f*",
        "rollout/a=leaderworkersets/f*0", "rollout/a=leaderworkersets/f*1001",
        "rollout/a=leaderworkersets/f*2x", "rollout/a=leaderworkersets/f*2*2",
        "rollout/a=leaderworkersets/*2"}) {
    const auto targets = ParseScaleTargets({text});
    EXPECT_EQ(targets.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(targets.status().message()), HasSubstr(text));
  }
  EXPECT_FALSE(ParseScaleTargets({"env=deployments/a", "env=deployments/b"}).ok());
}

}  // namespace
}  // namespace freshet
