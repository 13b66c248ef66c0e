// A cluster whose rollout generates on an inference server. The server is a fake.

#include "absl/strings/match.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/http_calls.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_SUCCEEDED;

std::string Job(int steps, const std::string& engine) {
  return StrCat(
      "name: served\n"
      "model: {init: random, config: {hidden_size: 64, num_hidden_layers: 1, "
      "num_attention_heads: 2, intermediate_size: 32, max_position_embeddings: 32}}\n"
      "tokenizer: {type: char, alphabet: \"0123456789+=\"}\n"
      "dataset: {type: arithmetic, operands: 2, digits: 2, train_rows: 4000}\n"
      "group_size: 2\n"
      "prompts_per_step: 4\n"
      "rollout: {max_new_tokens: 16, engine: ",
      engine,
      "}\n"
      "staleness: {max: 2}\n"
      "reward: {components: {length: {type: length, max_tokens: 16, margin_tokens: 8}}}\n"
      "trainer: {steps: ",
      steps,
      "}\n"
      "optimizer: {learning_rate: 1.0e-4}\n"
      "eval: {every_steps: 4, rows: 8}\n"
      "checkpoint: {every_steps: 4}\n");
}

class VllmClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    server_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        "/usr/bin/env", "python3", "-u",
        FRESHET_SOURCE_DIR "/tests/rollout/server_engine/fake_vllm.py", folder_.path()});
    ASSERT_TRUE(server_->AwaitOutput("listening", absl::Minutes(1)));
    ClusterOptions options;
    options.simulated = false;
    options.flags = [this](const std::string& role) -> std::vector<std::string> {
      if (role != "rollout") return {};
      return {"--engine", "vllm", "--engine-address", address(), "--engine-dir", folder_.path()};
    };
    cluster_ = std::make_unique<ClusterProcesses>(std::move(options));
    const absl::Status up = cluster_->Start({"rollout-0", "reward-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
  }
  std::string address() const { return "127.0.0.1:" + folder_.Read("port"); }

  // The server ends all answers and serves nothing until it starts anew.
  void Crash() {
    auto calls = runtime::OpenHttpCalls(address());
    ASSERT_TRUE(calls.ok()) << calls.status();
    runtime::HttpCall call;
    call.target = "/fake";
    call.body = R"({"crash": true})";
    (*calls)->Start(std::move(call));
    EXPECT_TRUE(ClusterProcesses::Await([&] {
      const auto events = (*calls)->Take(absl::Milliseconds(100));
      return !events.empty() && events.back().end;
    }));
  }

  ScratchFolder folder_;
  std::unique_ptr<ChildProcess> server_;
  std::unique_ptr<ClusterProcesses> cluster_;
};

TEST_F(VllmClusterTest, TrainsOnAServerThatIsLostOnce) {
  constexpr int kServedSteps = 40;
  const absl::Status submitted = cluster_->Submit("served", Job(kServedSteps, "vllm"));
  ASSERT_TRUE(submitted.ok()) << submitted;
  ASSERT_TRUE(cluster_->AwaitStep("served", 4)) << cluster_->Log("rollout-0");
  Crash();
  ASSERT_TRUE(cluster_->AwaitState("served", JOB_STATE_SUCCEEDED))
      << cluster_->Get("served")->ShortDebugString() << cluster_->Log("rollout-0");
  const MetricsText metrics = cluster_->Metrics("rollout-0");
  const std::map<std::string, std::string> job = {{"job", "served"}};
  EXPECT_EQ(metrics.Find("freshet_rollout_engine_restarts_total", job), 1);
  EXPECT_GE(metrics.Find("freshet_weight_swaps_total", job), kServedSteps / 4);
  const ChildResult verified = cluster_->Freshet({"ledger", "verify", "served"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST_F(VllmClusterTest, LeavesJobsForAnotherEngineWaiting) {
  const absl::Status submitted = cluster_->Submit("native", Job(1, "native"));
  ASSERT_TRUE(submitted.ok()) << submitted;
  const auto reason = [&] { return cluster_->Get("native").value_or(job::v1::Job()).reason(); };
  EXPECT_TRUE(ClusterProcesses::Await([&] {
    return absl::StrContains(
        reason(), "needs a rollout with engine native: pool default has 1 with engine vllm");
  })) << reason();
}

}  // namespace
}  // namespace freshet
