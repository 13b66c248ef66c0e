#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "env_workers/service.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using env::v1::EpisodeReply;
using env::v1::EpisodeRequest;

EpisodeRequest ResetOf(const std::string& environment,
                       const std::map<std::string, std::string>& options = {}) {
  EpisodeRequest request;
  request.mutable_reset()->set_environment(environment);
  request.mutable_reset()->set_seed(1);
  request.mutable_reset()->mutable_options()->insert(options.begin(), options.end());
  return request;
}
EpisodeRequest StepOf(const std::string& action) {
  EpisodeRequest request;
  request.mutable_step()->set_action(action);
  return request;
}

class EnvServiceTest : public testing::Test {
 protected:
  EnvServiceTest() : metrics_(*registry_, BuiltinEnvironments()) {}
  ~EnvServiceTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  env::v1::EnvService::Stub& stub() {
    if (stub_ == nullptr) {
      service_ = std::make_unique<EnvService>(BuiltinEnvironments(), clock_, &metrics_, options_);
      grpc::ServerBuilder builder;
      builder.RegisterService(service_.get());
      server_ = builder.BuildAndStart();
      stub_ = env::v1::EnvService::NewStub(server_->InProcessChannel({}));
    }
    return *stub_;
  }
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<EpisodeRequest, EpisodeReply>> stream;
    EpisodeReply Ask(const EpisodeRequest& request) {
      EpisodeReply reply;
      EXPECT_TRUE(stream->Write(request));
      EXPECT_TRUE(stream->Read(&reply));
      return reply;
    }
    grpc::Status End() {
      EpisodeReply reply;
      while (stream->Read(&reply)) {
      }
      return stream->Finish();
    }
  };
  std::unique_ptr<Call> Open() {
    env::v1::EnvService::Stub& episodes = stub();
    auto call = std::make_unique<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    call->stream = episodes.Episode(&call->context);
    return call;
  }
  std::string Metrics() { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

  FakeClock clock_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  EnvMetrics metrics_;
  EnvServiceOptions options_;
  std::unique_ptr<EnvService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<env::v1::EnvService::Stub> stub_;
};

TEST_F(EnvServiceTest, PlaysAnEpisode) {
  const auto call = Open();
  EXPECT_EQ(
      call->Ask(ResetOf("calculator", {{"source", "prompt"}, {"prompt", "12*34="}})).observation(),
      "");
  EXPECT_EQ(call->Ask(StepOf("[12*34]")).observation(), "408=");
  const EpisodeReply last = call->Ask(StepOf("408"));
  EXPECT_TRUE(last.terminated());
  EXPECT_EQ(last.reward(), 1.0);
  EXPECT_EQ(service_->open_episodes(), 1);
  EpisodeRequest close;
  close.mutable_close();
  ASSERT_TRUE(call->stream->Write(close));
  EXPECT_TRUE(call->End().ok());
  ASSERT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
  const std::string metrics = Metrics();
  EXPECT_NE(
      metrics.find("freshet_episodes_total{environment=\"calculator\",outcome=\"terminated\"} 1"),
      std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("freshet_episode_turns_sum{environment=\"calculator\"} 2"),
            std::string::npos);
}

TEST_F(EnvServiceTest, AStreamServesOneEpisodeAfterTheOther) {
  const auto call = Open();
  for (int i = 0; i < 3; ++i) {
    call->Ask(ResetOf("guess_number", {{"guesses", "1"}}));
    EXPECT_TRUE(call->Ask(StepOf("x")).truncated());
  }
  call->stream->WritesDone();
  EXPECT_TRUE(call->End().ok());
}

TEST_F(EnvServiceTest, AStepWithoutAnEpisodeEndsTheStream) {
  const auto call = Open();
  ASSERT_TRUE(call->stream->Write(StepOf("1")));
  EXPECT_EQ(call->End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(EnvServiceTest, SaysWhatIsWrongWithAReset) {
  const auto unknown = Open();
  ASSERT_TRUE(unknown->stream->Write(ResetOf("chess")));
  EXPECT_EQ(unknown->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Open();
  ASSERT_TRUE(bad->stream->Write(ResetOf("guess_number", {{"max", "x"}})));
  const grpc::Status status = bad->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("options.max: 'x'"), std::string::npos);
}

TEST_F(EnvServiceTest, AnEmptyRequestEndsTheStream) {
  const auto call = Open();
  ASSERT_TRUE(call->stream->Write(EpisodeRequest()));
  EXPECT_EQ(call->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(EnvServiceTest, RefusesMoreEpisodesThanItMayHold) {
  options_.max_episodes = 2;
  options_.max_waiting = 0;
  const auto one = Open();
  one->Ask(ResetOf("guess_number"));
  const auto two = Open();
  two->Ask(ResetOf("guess_number"));
  const auto three = Open();
  // A message already sent by a refused client starts no episode.
  three->stream->Write(ResetOf("guess_number"));
  EXPECT_EQ(three->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  one->stream->WritesDone();
  EXPECT_TRUE(one->End().ok());
  while (service_->open_episodes() > 1) std::this_thread::yield();
  const auto four = Open();
  four->Ask(ResetOf("guess_number"));
  for (const auto& call : {&two, &four}) {
    (*call)->stream->WritesDone();
    EXPECT_TRUE((*call)->End().ok());
  }
  ASSERT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
  EXPECT_NE(Metrics().find("{environment=\"guess_number\",outcome=\"abandoned\"} 3"),
            std::string::npos)
      << Metrics();
}

TEST_F(EnvServiceTest, AStreamThatFindsNoPlaceWaitsForOne) {
  options_.max_episodes = 1;
  options_.max_waiting = 2;
  const auto one = Open();
  one->Ask(ResetOf("guess_number"));
  const auto two = Open();
  ASSERT_TRUE(two->stream->Write(ResetOf("guess_number", {{"guesses", "1"}})));
  while (service_->waiting_episodes() < 1) std::this_thread::yield();
  const auto three = Open();
  ASSERT_TRUE(three->stream->Write(ResetOf("guess_number")));
  while (service_->waiting_episodes() < 2) std::this_thread::yield();
  const auto four = Open();
  EXPECT_EQ(four->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(service_->open_episodes(), 1);  // never above max_episodes
  one->stream->WritesDone();
  EXPECT_TRUE(one->End().ok());
  EpisodeReply reply;
  EXPECT_TRUE(two->stream->Read(&reply));  // waited longest
  EXPECT_TRUE(two->Ask(StepOf("x")).truncated());
  EXPECT_EQ(service_->waiting_episodes(), 1);
  two->stream->WritesDone();
  EXPECT_TRUE(two->End().ok());
  EXPECT_TRUE(three->stream->Read(&reply));
  three->stream->WritesDone();
  EXPECT_TRUE(three->End().ok());
}

TEST_F(EnvServiceTest, NoStreamWaitsForAPlaceForLong) {
  options_.max_episodes = 1;
  const auto one = Open();
  one->Ask(ResetOf("guess_number"));
  const auto two = Open();
  ASSERT_TRUE(two->stream->Write(ResetOf("guess_number")));
  while (service_->waiting_episodes() < 1) std::this_thread::yield();
  clock_.Advance(options_.max_wait / 2);
  service_->EndIdle();
  EXPECT_EQ(service_->waiting_episodes(), 1);
  clock_.Advance(options_.max_wait);
  service_->EndIdle();
  EXPECT_EQ(two->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(service_->waiting_episodes(), 0);
  EXPECT_EQ(one->Ask(StepOf("x")).observation(), "!");
  one->stream->WritesDone();
  EXPECT_TRUE(one->End().ok());
}

TEST_F(EnvServiceTest, AWaitingStreamMayBeCancelled) {
  options_.max_episodes = 1;
  const auto one = Open();
  one->Ask(ResetOf("guess_number"));
  const auto two = Open();
  ASSERT_TRUE(two->stream->Write(ResetOf("guess_number")));
  while (service_->waiting_episodes() < 1) std::this_thread::yield();
  two->context.TryCancel();
  EXPECT_EQ(two->End().error_code(), grpc::StatusCode::CANCELLED);
  while (service_->waiting_episodes() > 0) std::this_thread::yield();
  one->stream->WritesDone();
  EXPECT_TRUE(one->End().ok());
  EXPECT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(EnvServiceTest, EndsAStreamWhoseClientSaysNothing) {
  options_.idle_timeout = absl::Minutes(1);
  const auto silent = Open();
  silent->Ask(ResetOf("guess_number"));
  clock_.Advance(absl::Seconds(40));
  const auto busy = Open();
  busy->Ask(ResetOf("guess_number"));
  clock_.Advance(absl::Seconds(30));
  service_->EndIdle();
  EXPECT_EQ(silent->End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(busy->Ask(StepOf("x")).observation(), "!");
  busy->stream->WritesDone();
  EXPECT_TRUE(busy->End().ok());
  ASSERT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
  EXPECT_NE(Metrics().find("outcome=\"abandoned\"} 2"), std::string::npos) << Metrics();
}

TEST_F(EnvServiceTest, ACancelledStreamGivesItsPlaceBack) {
  const auto call = Open();
  call->Ask(ResetOf("guess_number"));
  call->context.TryCancel();
  EXPECT_EQ(call->End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(EnvServiceTest, DrainingItFinishesWhatRunsAndTakesNothingNew) {
  options_.max_episodes = 1;
  const auto running = Open();
  running->Ask(ResetOf("guess_number"));
  const auto waiting = Open();
  while (service_->waiting_episodes() < 1) std::this_thread::yield();
  service_->StopAdmitting();
  EXPECT_EQ(waiting->End().error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto late = Open();
  EXPECT_EQ(late->End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(service_->AwaitNoEpisodes(absl::Now()));
  EXPECT_EQ(running->Ask(StepOf("x")).observation(), "!");
  // A running stream cannot start another episode.
  ASSERT_TRUE(running->stream->Write(ResetOf("guess_number")));
  EXPECT_EQ(running->End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(service_->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(EnvServiceTest, ListsWhatItHas) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  env::v1::ListEnvironmentsReply reply;
  ASSERT_TRUE(stub().ListEnvironments(&context, {}, &reply).ok());
  ASSERT_EQ(reply.environments_size(), 2);
  EXPECT_EQ(reply.environments(0).name(), "calculator");
  EXPECT_EQ(reply.max_episodes(), 1024);
  EXPECT_EQ(reply.open_episodes(), 0);
}

}  // namespace
}  // namespace freshet
