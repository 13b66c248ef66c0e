// A real vLLM server on CPUs under supervise.sh, which tests/vllm/vllm_test.py starts. It has no
// GPU, so its workers cannot join a group; NCCL of the engine is the fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "collective/nccl_backend.h"
#include "rollout/server_engine/server_engine.h"
#include "rollout/server_engine/vllm_protocol.h"
#include "tests/rollout/server_engine/served_model.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// The smallest heads that vLLM computes on CPUs.
ModelConfig RealConfig() {
  ModelConfig config = ServedConfig();
  config.hidden_size = 128;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 256;
  return config;
}

class VllmRoutesTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* address = std::getenv("FRESHET_VLLM_ADDRESS");
    const char* folder = std::getenv("FRESHET_VLLM_DIR");
    if (address == nullptr || folder == nullptr) {
      GTEST_SKIP() << "needs a server: run ./dev vllm-test";
    }
    auto http = runtime::OpenHttpCalls(address);
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
    calls_ = std::make_unique<BufferedCalls>(*http_);
    auto nccl = OpenNcclBackend({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL});
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    auto shared = WeightsFolder::Open(folder, "routes", RealConfig());
    ASSERT_TRUE(shared.ok()) << shared.status();
    ServerEngineOptions options;
    options.request_prefix = "routes";
    options.server.load_timeout = absl::Minutes(2);
    engine_ = std::make_unique<ServerEngine>(
        VllmProtocol(), RealConfig(), *runtime::OpenHttpCalls(address), *std::move(shared),
        SystemClock::Get(), options,
        std::make_unique<WeightTransfer>(*nccl, RealConfig(), SystemClock::Get()));
  }

  // The message of an answer of status 500.
  std::string Refused(runtime::HttpCall call) {
    call.timeout = absl::Minutes(1);
    const auto body = calls_->Await(std::move(call));
    EXPECT_TRUE(absl::IsUnavailable(body.status())) << body.status();
    return Message(body.status());
  }
  void Accepted(const char* route) {
    runtime::HttpCall call = PostCall(route);
    call.timeout = absl::Minutes(1);
    const auto body = calls_->Await(std::move(call));
    ASSERT_TRUE(body.ok()) << body.status();
    const absl::Status status = CheckTransferAnswer(*body);
    EXPECT_TRUE(status.ok()) << status;
  }

  void LoadVersion(int64_t version) {
    const absl::Status loaded =
        engine_->LoadWeights(Lane::kRollout, ServedWeights(RealConfig(), {0, version}));
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  // Polls until `done`, at most until a server has had time to start.
  bool PollUntil(const std::function<bool()>& done) {
    const absl::Time deadline = SystemClock::Get().Now() + absl::Minutes(8);
    while (!done() && SystemClock::Get().Now() < deadline) {
      auto outputs = engine_->Poll();
      if (!outputs.ok()) {
        errors_.push_back(Message(outputs.status()));
        continue;
      }
      for (GenerationOutput& output : *outputs) responses_.push_back(std::move(output.response));
    }
    return done();
  }
  bool AwaitVersion(int64_t version) {
    return PollUntil([&] { return engine_->version(Lane::kRollout).version == version; });
  }
  void ExpectGenerates(int64_t version) {
    responses_.clear();
    GenerationRequest request;
    request.id = version;
    request.prompt_ids = {1, 2, 3};
    request.sample_indices = {0};
    request.sampling.max_new_tokens = 8;
    const absl::Status submitted = engine_->Submit(std::move(request));
    ASSERT_TRUE(submitted.ok()) << submitted;
    ASSERT_TRUE(PollUntil([&] { return !responses_.empty(); }));
    EXPECT_THAT(responses_[0].spans, ElementsAre(Span{{0, version}, 0, 8}));
  }

  std::unique_ptr<runtime::HttpCalls> http_;
  std::unique_ptr<BufferedCalls> calls_;
  std::unique_ptr<ServerEngine> engine_;
  std::vector<std::string> errors_;
  std::vector<Response> responses_;
};

TEST_F(VllmRoutesTest, AnswerAsTheEngineExpects) {
  LoadVersion(1);
  ASSERT_TRUE(AwaitVersion(1)) << testing::PrintToString(errors_);
  const auto size = calls_->Await(GetCall("/get_world_size?include_dp=true"));
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(ParseWorldSize(*size).value_or(0), 1) << *size;

  const std::vector<ParameterEntry> tensors = MakeParameterLayout(RealConfig()).entries;
  Accepted("/shutdown_weight_transfer_engine");
  EXPECT_THAT(Refused(PostCall("/finish_weight_update")),
              HasSubstr("without a matching start_weight_update"));
  EXPECT_THAT(Refused(UpdateWeights(tensors)), HasSubstr("must be called before update_weights"));
  Accepted("/start_weight_update");
  EXPECT_THAT(Refused(PostCall("/start_weight_update")), HasSubstr("already"));
  EXPECT_THAT(Refused(PostCall("/shutdown_weight_transfer_engine")),
              HasSubstr("during a weight update"));
  EXPECT_THAT(Refused(UpdateWeights(tensors)), HasSubstr("not initialized"));
  EXPECT_THAT(Refused(PostCall("/finish_weight_update")), HasSubstr("without a matching"));
  Accepted("/start_weight_update");
  Accepted("/finish_weight_update");
  EXPECT_THAT(Refused(InitTransfer(std::string(64, 'x'), 1, 1 << 20)),
              HasSubstr("must decode to 128 bytes"));
  ExpectGenerates(1);

  // The engine names what its server lacks, and has it start from the folder.
  LoadVersion(2);
  ASSERT_TRUE(PollUntil([&] { return !errors_.empty(); }));
  EXPECT_THAT(errors_, ElementsAre(HasSubstr("NVIDIA driver")));
  EXPECT_THAT(errors_[0], HasSubstr("/init_weight_transfer_engine with 500"));
  ASSERT_TRUE(AwaitVersion(2)) << testing::PrintToString(errors_);
  ExpectGenerates(2);
  EXPECT_THAT(errors_, SizeIs(1));
}

}  // namespace
}  // namespace freshet
