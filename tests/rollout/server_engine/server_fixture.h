#ifndef FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVER_FIXTURE_H_
#define FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_engine.h"
#include "rollout/server_engine/sglang_protocol.h"
#include "rollout/server_engine/vllm_protocol.h"
#include "tests/rollout/server_engine/served_model.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"
#include "tests/testing/fake_clock.h"

namespace freshet {

// A kind of server, its fake and the paths of its interface.
struct ServerKind {
  const ServerProtocol& (*protocol)();
  const char* name;
  const char* generate;
  const char* abort;
  const char* load;
  const char* set_version;        // sets the version of loaded weights
  const char* version;            // tells it
  std::vector<std::string> swap;  // paths of the calls that swap weights
};

inline std::vector<ServerKind> ServerKinds() {
  return {
      {VllmProtocol,
       "vllm",
       "/inference/v1/generate",
       "/inference/v1/abort_requests",
       "/collective_rpc",
       "/update_weight_version",
       "/weight_info",
       {"/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version",
        "/weight_info", "/resume"}},
      {SglangProtocol,
       "sglang",
       "/generate",
       "/abort_request",
       "/update_weights_from_disk",
       "/update_weights_from_disk",
       "/model_info",
       {"/pause_generation", "/update_weights_from_disk", "/model_info", "/continue_generation"}},
  };
}
inline void PrintTo(const ServerKind& kind, std::ostream* out) { *out << kind.name; }
inline std::string ServerKindName(const testing::TestParamInfo<ServerKind>& info) {
  return info.param.name;
}

// Engines on a fake server, which is a real process. Time stands still, except that every poll
// advances it by a millisecond.
class ServerFixture : public testing::TestWithParam<ServerKind> {
 protected:
  using Json = nlohmann::json;

  ServerFixture() {
    options_.request_prefix = "test";
    options_.server.probe_period = absl::Milliseconds(20);
    options_.abort_timeout = absl::Seconds(20);
  }

  void SetUp() override {
    server_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        "/usr/bin/env", "python3", "-u",
        StrCat(FRESHET_SOURCE_DIR "/tests/rollout/server_engine/fake_", GetParam().name, ".py"),
        scratch_.path()});
    ASSERT_TRUE(server_->AwaitOutput("listening", absl::Minutes(1)));
    auto calls = runtime::OpenHttpCalls(address());
    ASSERT_TRUE(calls.ok()) << calls.status();
    control_ = *std::move(calls);
  }

  std::string address() const { return "127.0.0.1:" + scratch_.Read("port"); }

  // Changes the fake's behaviour.
  void Tell(const Json& what) { CallFake("POST", what.dump()); }
  void Fail(const std::string& path, const std::string& kind, int times = 1, int after = 0) {
    Tell({{"fault", {{"path", path}, {"kind", kind}, {"times", times}, {"after", after}}}});
  }
  Json Ask() { return Json::parse(CallFake("GET", "")); }
  // Paths of the calls that the server got, without generate and abort calls.
  std::vector<std::string> ControlCalls() {
    std::vector<std::string> paths;
    const Json log = Ask().at("log");
    for (const Json& call : log) {
      const auto path = call.at("path").get<std::string>();
      if (path != GetParam().generate && path.find("abort") == std::string::npos) {
        paths.push_back(path);
      }
    }
    return paths;
  }
  // Bodies of the generate calls.
  std::vector<Json> GenerateCalls() {
    std::vector<Json> bodies;
    const Json log = Ask().at("log");
    for (const Json& call : log) {
      if (call.at("path") == GetParam().generate) bodies.push_back(call.at("body"));
    }
    return bodies;
  }

  std::unique_ptr<ServerEngine> MakeEngine(const std::string& unique = "a",
                                           const ModelConfig& config = ServedConfig()) {
    auto calls = runtime::OpenHttpCalls(address());
    EXPECT_TRUE(calls.ok()) << calls.status();
    auto folder = WeightsFolder::Open(scratch_.path(), unique, config);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return std::make_unique<ServerEngine>(
        GetParam().protocol(), config, *std::move(calls), *std::move(folder), clock_, options_,
        transfer_ == nullptr
            ? nullptr
            : std::make_unique<WeightTransfer>(transfer_, config, clock_, transfer_options_));
  }
  // An engine whose server has weights of version {0, 1}.
  std::unique_ptr<ServerEngine> Started() {
    auto engine = MakeEngine();
    Load(*engine, Lane::kRollout, 1);
    EXPECT_TRUE(RunUntil(*engine, [&] { return engine->version(Lane::kRollout).version == 1; }));
    return engine;
  }
  static void Load(ServerEngine& engine, Lane lane, int64_t version) {
    const absl::Status loaded =
        engine.LoadWeights(lane, ServedWeights(ServedConfig(), {0, version}));
    EXPECT_TRUE(loaded.ok()) << loaded;
  }

  static GenerationRequest Request(int64_t id, int32_t samples = 1, int32_t max_new_tokens = 8) {
    GenerationRequest request;
    request.id = request.ordinal = id;
    request.seed = 7;
    request.prompt_ids = {1, 2, static_cast<int32_t>(3 + id % 20)};
    for (int32_t i = 0; i < samples; ++i) request.sample_indices.push_back(i);
    request.sampling.max_new_tokens = max_new_tokens;
    return request;
  }
  static void Submit(ServerEngine& engine, GenerationRequest request) {
    const absl::Status status = engine.Submit(std::move(request));
    ASSERT_TRUE(status.ok()) << status;
  }

  // Polls until `done`, which is false after too many polls. Adds to responses_, failed_ and
  // errors_.
  bool RunUntil(ServerEngine& engine, const std::function<bool()>& done) {
    constexpr int kMostPolls = 20'000;
    for (int i = 0; i < kMostPolls && !done(); ++i) {
      clock_.Advance(absl::Milliseconds(1));
      auto outputs = engine.Poll();
      if (!outputs.ok()) {
        errors_.push_back(outputs.status());
        continue;
      }
      for (GenerationOutput& output : *outputs) {
        if (!output.error.ok()) {
          failed_[output.request_id] = output.error;
          continue;
        }
        const std::pair<int64_t, int32_t> key(output.request_id, output.sample_index);
        EXPECT_FALSE(responses_.contains(key)) << "sample delivered twice";
        responses_[key] = std::move(output.response);
      }
    }
    return done();
  }
  bool RunUntilIdle(ServerEngine& engine) {
    return RunUntil(engine, [&] { return engine.Idle(); });
  }
  // Until the engine fails.
  absl::Status RunUntilError(ServerEngine& engine) {
    const size_t before = errors_.size();
    EXPECT_TRUE(RunUntil(engine, [&] { return errors_.size() > before; }));
    return errors_.empty() ? absl::OkStatus() : errors_.back();
  }
  // Until the server has `tokens` tokens of the rollout lane delivered.
  bool RunUntilTokens(ServerEngine& engine, int64_t tokens) {
    return RunUntil(engine, [&] { return engine.stats().tokens_generated >= tokens; });
  }

  FakeClock clock_;
  ScratchFolder scratch_;
  ServerEngineOptions options_;
  std::shared_ptr<CommunicatorBackend> transfer_;  // of the engine's WeightTransfer; null: none
  WeightTransferOptions transfer_options_;
  std::map<std::pair<int64_t, int32_t>, Response> responses_;
  std::map<int64_t, absl::Status> failed_;  // requests that were given up
  std::vector<absl::Status> errors_;

 private:
  std::string CallFake(const std::string& method, std::string body) {
    BufferedCalls calls(*control_);
    runtime::HttpCall call;
    call.method = method;
    call.target = "/fake";
    call.body = std::move(body);
    call.max_bytes = 64 << 20;
    const auto answer = calls.Await(std::move(call));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or("{}");
  }

  std::unique_ptr<ChildProcess> server_;
  std::unique_ptr<runtime::HttpCalls> control_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_SERVER_ENGINE_SERVER_FIXTURE_H_
