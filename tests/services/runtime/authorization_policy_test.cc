#include "services/runtime/authorization_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;

constexpr char kPolicy[] = R"({
  "name": "controller",
  "deny_rules": [{"name": "no_delete", "source": {"principals": ["spiffe://f/intern*"]},
                  "request": {"paths": ["*/Delete"]}}],
  "allow_rules": [
    {"name": "workers", "source": {"principals": ["spiffe://f/rollout", "*.trainer.f"]},
     "request": {"paths": ["/freshet.cluster.v1.WorkerService/*"]}},
    {"name": "people", "source": {"principals": ["spiffe://f/*"]},
     "request": {"paths": ["/freshet.job.v1.JobService/Get", "/freshet.job.v1.JobService/Delete"]}},
    {"name": "known", "source": {"principals": ["*"]}, "request": {"paths": ["/any.Service/*"]}},
    {"name": "health", "request": {"paths": ["/grpc.health.v1.Health/*"]}}]
})";

struct Case {
  const char* name;
  std::vector<std::string> principals;
  const char* path;
  bool allowed;
  const char* reason;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class PolicyDecision : public ::testing::TestWithParam<Case> {};

TEST_P(PolicyDecision, FollowsTheRules) {
  const auto policy = ParseAuthorizationPolicy(kPolicy);
  ASSERT_TRUE(policy.ok()) << policy.status();
  const AuthorizationDecision decision =
      DecideAuthorization(*policy, GetParam().principals, GetParam().path);
  EXPECT_EQ(decision.allowed, GetParam().allowed);
  EXPECT_EQ(decision.reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    All, PolicyDecision,
    ::testing::Values(
        Case{"Exact",
             {"spiffe://f/rollout"},
             "/freshet.cluster.v1.WorkerService/Register",
             true,
             "allow rule workers"},
        Case{"ExactIsNoPrefix",
             {"spiffe://f/rollout2"},
             "/freshet.cluster.v1.WorkerService/Register",
             false,
             "no allow rule"},
        Case{"Suffix",
             {"0.trainer.f"},
             "/freshet.cluster.v1.WorkerService/Heartbeat",
             true,
             "allow rule workers"},
        Case{"OtherService",
             {"0.trainer.f"},
             "/freshet.job.v1.JobService/Get",
             false,
             "no allow rule"},
        Case{"Prefix",
             {"spiffe://f/alice"},
             "/freshet.job.v1.JobService/Get",
             true,
             "allow rule people"},
        Case{"DenyGoesFirst",
             {"spiffe://f/intern-7"},
             "/freshet.job.v1.JobService/Delete",
             false,
             "deny rule no_delete"},
        Case{"DenyNeedsBothSides",
             {"spiffe://f/alice"},
             "/freshet.job.v1.JobService/Delete",
             true,
             "allow rule people"},
        Case{"AnyOfSeveralNames",
             {"dns", "spiffe://f/bob"},
             "/freshet.job.v1.JobService/Get",
             true,
             "allow rule people"},
        Case{"StarIsAnyName", {"x"}, "/any.Service/M", true, "allow rule known"},
        Case{"StarIsNotNobody", {}, "/any.Service/M", false, "no allow rule"},
        Case{"NoNameNeeded", {}, "/grpc.health.v1.Health/Check", true, "allow rule health"},
        Case{"EmptyPath", {"spiffe://f/alice"}, "", false, "no allow rule"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(AuthorizationPolicy, RefusesWhatItWouldMisread) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "not JSON"},
      {"[]", "policy: not an object"},
      {R"({"allow_rules": [{"name": "a"}]})", "policy.name"},
      {R"({"name": "p"})", "at least one rule"},
      {R"({"name": "p", "allow_rules": []})", "at least one rule"},
      {R"({"name": "p", "allow_rules": [{}]})", "allow_rules[0].name"},
      {R"({"name": "p", "allow_rules": {"name": "a"}})", "allow_rules: not a list"},
      {R"({"name": "p", "audit": 1, "allow_rules": [{"name": "a"}]})", "\"audit\""},
      {R"({"name": "p", "allow_rules": [{"name": "a", "request": {"headers": []}}]})",
       "\"headers\""},
      {R"({"name": "p", "allow_rules": [{"name": "a", "source": {"principals": "x"}}]})",
       "principals: not a list"},
      {R"({"name": "p", "allow_rules": [{"name": "a", "request": {"paths": [1]}}]})",
       "every entry must be a text"},
      {std::string(100, '['), "nested deeper"},
      {std::string((1 << 20) + 1, ' '), "limit"}};
  for (const auto& [json, part] : bad) {
    const auto policy = ParseAuthorizationPolicy(json);
    ASSERT_FALSE(policy.ok()) << json.substr(0, 80);
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr(part));
  }
}

TEST(AuthorizationPolicy, TakesBracketsInsideOfTexts) {
  const std::string json =
      R"({"name": ")" + std::string(50, '[') + R"(\"", "allow_rules": [{"name": "a"}]})";
  EXPECT_TRUE(ParseAuthorizationPolicy(json).ok());
}

}  // namespace
}  // namespace freshet::runtime
