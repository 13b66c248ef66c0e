// A cluster with mutual TLS. The certificates are made with openssl.

#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster_job.h"
#include "tests/services/runtime/certificates.h"
#include "tests/testing/chart_policy.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr char kNames[] = "IP:127.0.0.1,DNS:localhost";
constexpr int kRefused = 4;
constexpr int kNoConnection = 7;

class ClusterTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    certs_.MakeAuthority("ca");
    certs_.Make("member", "ca", kNames);
    certs_.Make("user", "ca", "DNS:user");
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    ClusterOptions options;
    options.simulated = false;
    options.tls = certs_.Files("member", "ca");
    options.client_tls = certs_.Files("user", "ca");
    options.redis = {{"tls-cert-file", certs_.Path("member.pem")},
                     {"tls-key-file", certs_.Path("member.key")},
                     {"tls-ca-cert-file", certs_.Path("ca.pem")},
                     {"tls-auth-clients", "yes"}};
    cluster_ = std::make_unique<ClusterProcesses>(options);
    const absl::Status up =
        cluster_->Start({"rollout-0", "rollout-1", "reward-0", "env-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
  }
  std::string Freshet(const std::vector<std::string>& args) {
    const ChildResult result = cluster_->Freshet(args);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.out;
  }

  Certificates certs_;
  std::unique_ptr<ClusterProcesses> cluster_;
};

TEST_F(ClusterTlsTest, TrainsWithWeightsAndEpisodesOverMutualTls) {
  cluster_->folder().Write(
      "job.yaml", QuickJob(8,
                           "weight_sync: {transport: grpc_relay}\n"
                           "environment: {type: guess_number, max_turns: 2, max_turn_tokens: 8}\n"
                           "reward: {components: {won: {type: environment}}}\n"
                           "eval: {rows: 4, every_steps: 4}\n"));
  Freshet({"submit", cluster_->folder().File("job.yaml"), "--id", "j"});
  EXPECT_THAT(Freshet({"watch", "j"}), HasSubstr("SUCCEEDED"));
  EXPECT_EQ(nlohmann::json::parse(Freshet({"get", "j", "-o", "json"})).value("step", 0), 8);
  Freshet({"ledger", "verify", "j"});
  Freshet({"checkpoint", "export", "j", cluster_->folder().File("exported")});
  EXPECT_FALSE(cluster_->folder().Read("exported/model.safetensors").empty());
  // Bytes sent through shared memory are not counted, so these were relayed.
  EXPECT_GT(cluster_->Metrics("trainer-0").Find("freshet_weight_sync_bytes_total"), 0);
  double verified = 0;  // a rollout that is slow to begin skips versions
  for (const char* engine : {"rollout-0", "rollout-1"}) {
    verified += cluster_->Metrics(engine)
                    .Find("freshet_weight_sync_seconds_count", {{"phase", "verify"}})
                    .value_or(0);
  }
  EXPECT_GT(verified, 1) << cluster_->Log("rollout-0") << cluster_->Log("rollout-1");
  EXPECT_GT(*cluster_->Metrics("env-0").Sum("freshet_episodes_total"), 0);
}

TEST_F(ClusterTlsTest, KeepsOutWhoHasNoCertificateOfTheAuthority) {
  certs_.MakeAuthority("other");
  certs_.Make("stranger", "other", "DNS:user");
  EXPECT_EQ(cluster_->Freshet({"list"}).exit_code, 0);
  EXPECT_EQ(cluster_->FreshetAs({}, {"list"}).exit_code, kNoConnection);
  EXPECT_EQ(cluster_->FreshetAs(certs_.Files("", "ca"), {"list"}).exit_code, kNoConnection);
  EXPECT_EQ(cluster_->FreshetAs(certs_.Files("stranger", "ca"), {"list"}).exit_code, kNoConnection);
  EXPECT_EQ(cluster_->FreshetAs(certs_.Files("user", "other"), {"list"}).exit_code, kNoConnection);
}

// A cluster as the chart configures it: one certificate per role without addresses, the chart's
// policies, and users with tokens.
class ClusterRolesTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    certs_.MakeAuthority("ca");
    for (const char* role : {"controller", "rollout", "reward", "env", "trainer", "user"}) {
      const bool controller = std::string(role) == "controller";
      certs_.Make(role, "ca",
                  StrCat("DNS:", ChartName(role), controller ? ",IP:127.0.0.1,DNS:localhost" : ""));
      Write(StrCat(role, ".json"), ChartPolicy(role));
    }
    std::string users;
    for (const char* role : {"viewer", "submitter", "admin"}) {
      Write(StrCat(role, ".token"), StrCat("token-of-a-", role, "\n"));
      users += StrCat(users.empty() ? "" : ",", R"({"name": ")", role, R"(", "role": ")", role,
                      R"(", "token_sha256": ")", Sha256Hex(StrCat("token-of-a-", role)), R"("})");
    }
    Write("users.json", StrCat(R"({"users": [)", users, "]}"));
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    ClusterOptions options;
    options.simulated = false;
    options.client_tls = certs_.Files("user", "ca");
    options.token_file = certs_.Path("submitter.token");
    options.flags = [this](const std::string& role) { return Flags(role); };
    cluster_ = std::make_unique<ClusterProcesses>(options);
    const absl::Status up =
        cluster_->Start({"rollout-0", "rollout-1", "reward-0", "env-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(certs_.Path(name), text).ok());
  }
  std::vector<std::string> Flags(const std::string& role) const {
    std::vector<std::string> flags = {
        "--tls-cert",     certs_.Path(role + ".pem"), "--tls-key",       certs_.Path(role + ".key"),
        "--tls-ca",       certs_.Path("ca.pem"),      "--tls-peer-name", kChartPeerName,
        "--authz-policy", certs_.Path(role + ".json")};
    if (role == "controller") {
      flags.insert(flags.end(), {"--users", certs_.Path("users.json")});
    }
    return flags;
  }
  // Runs a command with the token of that role; returns its exit code.
  int CodeAs(const std::string& role, std::vector<std::string> args) {
    args.insert(args.end(), {"--token-file", certs_.Path(role + ".token")});
    return cluster_->FreshetAs(certs_.Files("user", "ca"), args).exit_code;
  }

  Certificates certs_;
  std::unique_ptr<ClusterProcesses> cluster_;
};

TEST_F(ClusterRolesTest, TrainsUnderTheChartsPoliciesWithoutADenial) {
  cluster_->folder().Write(
      "job.yaml", QuickJob(8,
                           "weight_sync: {transport: gloo}\n"
                           "environment: {type: guess_number, max_turns: 2, max_turn_tokens: 8}\n"
                           "reward: {components: {won: {type: environment}}}\n"
                           "eval: {rows: 4, every_steps: 4}\n"));
  const ChildResult submitted =
      cluster_->Freshet({"submit", cluster_->folder().File("job.yaml"), "--id", "j"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.out << submitted.err;
  EXPECT_THAT(cluster_->Freshet({"watch", "j"}).out, HasSubstr("SUCCEEDED"));
  EXPECT_EQ(cluster_->Freshet({"ledger", "verify", "j"}).exit_code, 0);
  for (const char* name :
       {"controller", "rollout-0", "rollout-1", "reward-0", "env-0", "trainer-0"}) {
    EXPECT_EQ(cluster_->Metrics(name).Find("freshet_authz_denied_total"), 0) << cluster_->Log(name);
  }
}

TEST_F(ClusterRolesTest, UsersMayDoWhatTheirRoleMay) {
  EXPECT_EQ(CodeAs("viewer", {"list"}), 0);
  EXPECT_EQ(CodeAs("viewer", {"scale", "reward", "1"}), kRefused);
  EXPECT_EQ(CodeAs("submitter", {"scale", "reward", "1"}), kRefused);
  EXPECT_EQ(CodeAs("admin", {"scale", "reward", "1"}), 0);
  Write("stranger.token", "token-of-nobody\n");
  EXPECT_EQ(CodeAs("stranger", {"list"}), kRefused);
  const ChildResult without = cluster_->FreshetAs(certs_.Files("user", "ca"), {"list"});
  EXPECT_EQ(without.exit_code, kRefused);
  EXPECT_THAT(without.err, HasSubstr("without a token"));
  const MetricsText metrics = cluster_->Metrics("controller");
  EXPECT_EQ(metrics.Find("freshet_authn_failures_total", {{"reason", "unknown"}}), 1);
  EXPECT_EQ(metrics.Find("freshet_authn_failures_total", {{"reason", "missing"}}), 1);
}

TEST_F(ClusterRolesTest, AStandbyPassesCallsOnByTheLeadersName) {
  ASSERT_TRUE(cluster_->Launch("controller-1").ok());
  const ChildResult cluster = cluster_->Freshet({"top", "--json"}, "controller-1");
  EXPECT_EQ(cluster.exit_code, 0) << cluster.err << cluster_->Log("controller-1");
  EXPECT_THAT(cluster.out, HasSubstr("trainer-0"));
}

}  // namespace
}  // namespace freshet
