// A cluster whose members know each other by certificates, made in the test with openssl.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster_job.h"
#include "tests/services/runtime/certificates.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr char kNames[] = "IP:127.0.0.1,DNS:localhost";
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
  // Bytes that went through shared memory are not counted: these went down the chain.
  EXPECT_GT(cluster_->Metrics("trainer-0").Find("freshet_weight_sync_bytes_total"), 0);
  for (const char* engine : {"rollout-0", "rollout-1"}) {
    EXPECT_GE(
        cluster_->Metrics(engine).Find("freshet_weight_sync_seconds_count", {{"phase", "verify"}}),
        8)
        << engine << ": " << cluster_->Log(engine);
  }
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

}  // namespace
}  // namespace freshet
