#include "rollout/openai/endpoint_port.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/http_client.h"
#include "tests/rollout/openai/scripted_engine.h"
#include "tests/testing/fake_clock.h"
#include "text/char_tokenizer.h"

namespace freshet::openai {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr absl::Duration kPortGuard = absl::Seconds(30);

class EndpointPortTest : public testing::Test {
 protected:
  void Start(EndpointPortOptions options = {}) {
    auto port = EndpointPort::Start(std::move(options));
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }
  std::unique_ptr<RolloutEndpoint> Endpoint(const std::string& model) {
    RolloutEndpointOptions options;
    options.api = port_->api();
    options.api.model_name = model;
    return std::make_unique<RolloutEndpoint>(engine_, *tokenizer_, clock_, std::move(options));
  }
  runtime::HttpResponse Get(const std::string& path) {
    return runtime::HttpGet(port_->address(), path, kPortGuard);
  }

  FakeClock clock_;
  ScriptedEngine engine_;
  const std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("abc");
  std::unique_ptr<EndpointPort> port_;
};

TEST_F(EndpointPortTest, ServesTheCurrentJobOrSaysThatThereIsNone) {
  Start();
  EXPECT_EQ(Get("/v1/models").status, 503);
  EXPECT_THAT(Get("/v1/models").body, HasSubstr("no job runs on this rollout"));
  const auto first = Endpoint("one");
  const auto second = Endpoint("two");
  port_->Attach(*first);
  EXPECT_THAT(Get("/v1/models").body, HasSubstr(R"("id":"one")"));
  port_->Attach(*second);
  port_->Detach(*first);  // late: another has taken its place
  EXPECT_THAT(Get("/v1/models").body, HasSubstr(R"("id":"two")"));
  port_->Detach(*second);
  EXPECT_EQ(Get("/v1/models").status, 503);
}

TEST_F(EndpointPortTest, TellsWhatWaitsAndWhichSessionsAreOpen) {
  Start();
  EXPECT_EQ(port_->stats().sessions, 0);
  const auto endpoint = Endpoint("one");
  port_->Attach(*endpoint);
  ASSERT_TRUE(endpoint->sessions().Open({}).ok());
  EXPECT_EQ(port_->stats().sessions, 1);
  port_->Detach(*endpoint);
}

TEST_F(EndpointPortTest, CountsByOutcome) {
  RequestCounts counts;
  counts.Count(absl::OkStatus());
  counts.Count(absl::CancelledError(""));
  counts.Count(absl::CancelledError(""));
  EXPECT_EQ(counts.of(static_cast<size_t>(Outcome::kOk)), 1);
  EXPECT_EQ(counts.of(static_cast<size_t>(Outcome::kGone)), 2);
  EXPECT_EQ(OutcomeOf(absl::InvalidArgumentError("")), Outcome::kInvalid);
  EXPECT_EQ(OutcomeOf(absl::UnauthenticatedError("")), Outcome::kDenied);
  EXPECT_EQ(OutcomeOf(absl::ResourceExhaustedError("")), Outcome::kFull);
  EXPECT_EQ(OutcomeOf(absl::UnavailableError("")), Outcome::kUnavailable);
  EXPECT_EQ(OutcomeOf(absl::DeadlineExceededError("")), Outcome::kLate);
  EXPECT_EQ(OutcomeOf(absl::InternalError("")), Outcome::kFailed);
}

TEST_F(EndpointPortTest, TellsAgentsWhereItIs) {
  Start();
  EXPECT_THAT(port_->base_url(), MatchesRegex("http://127.0.0.1:[1-9][0-9]*/v1"));
  EndpointPortOptions advertised;
  advertised.advertise = "https://engine-3:7400/v1";
  Start(advertised);
  EXPECT_EQ(port_->base_url(), "https://engine-3:7400/v1");
  EndpointPortOptions on_all;
  on_all.listen = "0.0.0.0:0";
  on_all.advertised_host = "engine-3";
  Start(on_all);
  EXPECT_THAT(port_->base_url(), MatchesRegex("http://engine-3:[1-9][0-9]*/v1"));
}

TEST_F(EndpointPortTest, OnLoopbackServesOnlyAgentsOnLoopback) {
  Start();
  EXPECT_EQ(*port_->BaseUrlFor("127.0.0.1:7200"), port_->base_url());
  EXPECT_EQ(*port_->BaseUrlFor("http://localhost:7200/play"), port_->base_url());
  for (const char* elsewhere : {"agents:7200", "http://10.0.0.7:7200/play"}) {
    const absl::Status refused = port_->BaseUrlFor(elsewhere).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << elsewhere;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--openai-listen"));
  }
  EndpointPortOptions advertised;
  advertised.advertise = "https://engine-3:7400/v1";  // of a proxy
  Start(advertised);
  EXPECT_EQ(*port_->BaseUrlFor("agents:7200"), advertised.advertise);
  EndpointPortOptions on_all;
  on_all.listen = "0.0.0.0:0";
  on_all.advertised_host = "engine-3";
  Start(on_all);
  EXPECT_EQ(*port_->BaseUrlFor("agents:7200"), port_->base_url());
}

}  // namespace
}  // namespace freshet::openai
