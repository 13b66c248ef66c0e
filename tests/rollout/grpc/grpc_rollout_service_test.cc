#include "rollout/grpc/grpc_rollout_service.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/openai/generation_loop.h"
#include "services/runtime/status.h"
#include "tests/rollout/openai/hooked_tokenizer.h"
#include "tests/rollout/openai/scripted_engine.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/loopback_server.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using rollout::v1::GenerateReply;
using rollout::v1::GenerateRequest;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kGuard = absl::Seconds(30);
constexpr int kMaxUnread = 1024;  // more than a call that is read ever generates here

// A job named "job" whose model counts; see ScriptedEngine.
class GrpcRolloutServiceTest : public testing::Test {
 protected:
  ~GrpcRolloutServiceTest() override {
    loop_.Stop();
    service_.Detach(target_);
  }
  void SetUp() override {
    target_.job = "job";
    target_.queue = &loop_;
    target_.tokenizer = tokenizer_;
    target_.pause_engine_until = [this](absl::Time end) { paused_until_ = end; };
    target_.fill_stats = [](rollout::v1::GetStatsReply& reply) { reply.set_sessions(3); };
    service_.Attach(target_);
  }
  std::unique_ptr<InferenceEngine> Engine() {
    auto engine = std::make_unique<ScriptedEngine>(/*max_sequences=*/64, /*cache_blocks=*/512);
    engine->frozen = [this] { return frozen_.load(); };
    return engine;
  }
  // What a stream holds that nobody reads stays at gRPC's smallest.
  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
    return arguments;
  }
  static GenerateRequest Request(std::vector<int32_t> prompt, int32_t max_new_tokens) {
    GenerateRequest request;
    request.mutable_prompt_ids()->mutable_ids()->Assign(prompt.begin(), prompt.end());
    request.mutable_sampling()->set_max_new_tokens(max_new_tokens);
    request.mutable_sampling()->set_temperature(0);
    return request;
  }
  // Reads a whole stream into tokens_, by sample.
  absl::Status Generate(const GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kGuard));
    const auto reader = stub_->Generate(&context, request);
    GenerateReply reply;
    while (reader->Read(&reply)) {
      for (const rollout::v1::Token& token : reply.tokens()) {
        tokens_[token.sample()].push_back(token);
      }
    }
    return runtime::GrpcToStatus(reader->Finish());
  }
  static std::vector<int32_t> Ids(const std::vector<rollout::v1::Token>& tokens) {
    std::vector<int32_t> ids;
    for (const rollout::v1::Token& token : tokens) ids.push_back(token.id());
    return ids;
  }
  void ExpectNothingHeld() {
    EXPECT_TRUE(loop_.Drain(kGuard));
    const QueueStats stats = loop_.stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.engine.cache_blocks_free, stats.engine.cache_blocks);
  }

  std::atomic<bool> frozen_{false};
  FakeClock clock_;
  const std::shared_ptr<HookedTokenizer> tokenizer_ =
      std::make_shared<HookedTokenizer>(*CreateCharTokenizer("abcdefghij"));
  openai::GenerationLoop loop_{Engine(), {}, SystemClock::Get()};
  RolloutTarget target_;
  absl::Time paused_until_;
  std::map<int32_t, std::vector<rollout::v1::Token>> tokens_;
  GrpcRolloutService service_{clock_, kMaxUnread};
  LoopbackServer server_{&service_};
  const std::unique_ptr<rollout::v1::RolloutService::Stub> stub_ =
      rollout::v1::RolloutService::NewStub(grpc::CreateCustomChannel(
          server_.address(), grpc::InsecureChannelCredentials(), SmallWindow()));
};

TEST_F(GrpcRolloutServiceTest, StreamsTokensWithLogProbsAndVersions) {
  GenerateRequest request = Request({3}, 4);
  request.set_samples(2);
  request.mutable_sampling()->set_top_logprobs(2);
  ASSERT_EQ(Generate(request), absl::OkStatus());
  ASSERT_EQ(tokens_.size(), 2U);
  for (const auto& [sample, tokens] : tokens_) {
    EXPECT_THAT(Ids(tokens), ElementsAre(4, 5, 6, 7));
    EXPECT_NEAR(tokens[0].logprob(), 0, 1e-3);
    EXPECT_EQ(tokens[0].policy().version(), 7);
    EXPECT_EQ(tokens[0].top_size(), 2);
    EXPECT_EQ(tokens[0].top(0).id(), 4);
    EXPECT_EQ(tokens[2].finish(), trajectory::v1::FINISH_REASON_UNSPECIFIED);
    EXPECT_EQ(tokens[3].finish(), trajectory::v1::FINISH_REASON_LENGTH);
  }
  ExpectNothingHeld();
}

TEST_F(GrpcRolloutServiceTest, TakesTextAndStops) {
  GenerateRequest request = Request({}, 20);
  request.set_prompt("ab");
  request.mutable_sampling()->add_stop("e");
  ASSERT_EQ(Generate(request), absl::OkStatus());
  EXPECT_EQ(tokenizer_->Decode(Ids(tokens_[0]), false), "cde");
  EXPECT_EQ(tokens_[0].back().finish(), trajectory::v1::FINISH_REASON_STOP);
}

TEST_F(GrpcRolloutServiceTest, ACancelledCallFreesItsCache) {
  grpc::ClientContext context;
  frozen_ = true;  // nothing but its end frees the cache
  const auto reader = stub_->Generate(&context, Request({1}, 200));
  context.TryCancel();
  GenerateReply reply;
  while (reader->Read(&reply)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectNothingHeld();
}

TEST_F(GrpcRolloutServiceTest, TheDeadlineEndsACall) {
  frozen_ = true;  // nothing but its end frees the cache
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(50)));
  const auto reader = stub_->Generate(&context, Request({1}, 200));
  GenerateReply reply;
  while (reader->Read(&reply)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectNothingHeld();
}

TEST_F(GrpcRolloutServiceTest, ACallerThatDoesNotReadLosesItsCallOnly) {
  GenerateRequest large = Request({1}, 250);
  large.set_samples(30);  // megabytes, far beyond what a connection holds
  large.mutable_sampling()->set_top_logprobs(20);
  large.mutable_sampling()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto unread = stub_->Generate(&context, large);
  GenerateReply reply;
  ASSERT_TRUE(unread->Read(&reply));  // it has begun
  // The engine goes on, and has nothing left of that call when it ends.
  ASSERT_EQ(Generate(Request({3}, 250)), absl::OkStatus());
  ExpectNothingHeld();
  while (unread->Read(&reply)) {
  }
  const absl::Status status = runtime::GrpcToStatus(unread->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("wait to be read"));
}

TEST_F(GrpcRolloutServiceTest, NamesWhatIsWrong) {
  const auto expect = [this](const GenerateRequest& request, absl::StatusCode code,
                             const std::string& part) {
    const absl::Status status = Generate(request);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect(Request({}, 1), kInvalid, "prompt_ids: is empty");
  expect(Request({1}, 0), kInvalid, "sampling: max_new_tokens");
  expect(Request({1}, 1000), kInvalid, "context");
  expect(Request({77}, 1), kInvalid, "77");
  GenerateRequest request = Request({1}, 1);
  request.set_samples(129);
  expect(request, kInvalid, "samples: want 1 to 128, got 129");
  request = Request({1}, 1);
  request.mutable_sampling()->add_stop("");
  expect(request, kInvalid, "sampling.stop");
  request = Request({1}, 1);
  request.set_job_id("other");
  expect(request, absl::StatusCode::kFailedPrecondition, "job_id: job job runs on this rollout");
  service_.Detach(target_);
  expect(Request({1}, 1), absl::StatusCode::kUnavailable, "no job runs on this rollout");
}

TEST_F(GrpcRolloutServiceTest, AJobMayEndWhileAPromptIsTokenized) {
  Notification detached;
  std::jthread job;
  tokenizer_->on_encode = [&] {
    job = std::jthread([&] {
      service_.Detach(target_);
      detached.Notify();
    });
    EXPECT_TRUE(detached.WaitFor(kGuard));
  };
  GenerateRequest request = Request({}, 1);
  request.set_prompt("a");
  EXPECT_EQ(Generate(request).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcRolloutServiceTest, RefusesWhileItDrainsAndLetsTheRestEnd) {
  service_.StartDrain(SystemClock::Get().Now() + kGuard);
  EXPECT_TRUE(loop_.draining());
  EXPECT_EQ(Generate(Request({1}, 1)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcRolloutServiceTest, PausesForABoundedTimeAndResumes) {
  const auto pause = [this](std::optional<int64_t> seconds) {
    grpc::ClientContext context;
    rollout::v1::PauseRequest request;
    if (seconds.has_value()) request.mutable_duration()->set_seconds(*seconds);
    rollout::v1::PauseReply reply;
    return runtime::GrpcToStatus(stub_->Pause(&context, request, &reply));
  };
  EXPECT_EQ(pause(std::nullopt), absl::OkStatus());
  EXPECT_EQ(paused_until_, clock_.Now() + absl::Minutes(1));
  EXPECT_EQ(pause(5), absl::OkStatus());
  EXPECT_EQ(paused_until_, clock_.Now() + absl::Seconds(5));
  EXPECT_THAT(std::string(pause(3601).message()), HasSubstr("duration"));
  grpc::ClientContext context;
  rollout::v1::ResumeReply reply;
  EXPECT_TRUE(stub_->Resume(&context, {}, &reply).ok());
  EXPECT_LE(paused_until_, clock_.Now());
}

TEST_F(GrpcRolloutServiceTest, TellsTheStateOfTheEngine) {
  grpc::ClientContext context;
  rollout::v1::GetStatsReply reply;
  ASSERT_TRUE(stub_->GetStats(&context, {}, &reply).ok());
  EXPECT_EQ(reply.job_id(), "job");
  EXPECT_EQ(reply.sessions(), 3);
  EXPECT_EQ(reply.cache_blocks(), 512);
  EXPECT_EQ(reply.cache_blocks_free(), 512);
  EXPECT_FALSE(reply.draining());
}

}  // namespace
}  // namespace freshet
