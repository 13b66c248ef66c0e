#include "local/local_services.h"

#include <optional>

#include "env_workers/service.h"
#include "freshet/reward/v1/reward_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/loopback_server.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// A user's reward service: the length of the completion.
class LengthReward final : public reward::v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext*, const reward::v1::ScoreRequest* request,
                     reward::v1::ScoreReply* reply) override {
    for (const reward::v1::ScoreItem& item : request->items()) {
      trajectory::v1::Score& score = *reply->add_scores();
      score.set_reward(static_cast<double>(item.completion().size()));
      score.set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    }
    return grpc::Status::OK;
  }
};

class LocalServicesTest : public testing::Test {
 protected:
  std::string Serve(grpc::Service& service) { return server_.emplace(&service).address(); }

  LengthReward reward_;
  EnvService environments_{BuiltinEnvironments(), SystemClock::Get(), nullptr, {}};
  std::optional<LoopbackServer> server_;
};

TEST_F(LocalServicesTest, AsksTheUsersReward) {
  const auto scorer = ConnectedScorers({})->remote({Serve(reward_), "", absl::Seconds(10)});
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const std::map<std::string, std::string> row;
  const auto score = (*scorer)->Score({"four", 4, true, row, absl::Seconds(10)});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 4);
}

TEST_F(LocalServicesTest, ARewardThatNobodyServesIsNoReward) {
  const auto scorer = ConnectedScorers({})->remote({"127.0.0.1:1", "", absl::Milliseconds(200)});
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const std::map<std::string, std::string> row;
  const auto score = (*scorer)->Score({"four", 4, true, row, absl::Seconds(10)});
  EXPECT_FALSE(score.ok());
  EXPECT_THAT(Message(score.status()), HasSubstr("127.0.0.1:1"));
}

TEST_F(LocalServicesTest, PlaysWithTheUsersEnvironment) {
  job::v1::Environment environment;
  environment.set_type("grpc");
  environment.set_address(Serve(environments_));
  environment.set_step_timeout_ms(10000);
  const auto client = ConnectEnvironment(environment, SystemClock::Get());
  client->Reset(1, {"guess_number", 1, {{"max", "2"}}});
  std::vector<EpisodeEvent> events;
  for (int tries = 0; tries < 100 && events.empty(); ++tries) {
    client->Await(absl::Seconds(1));
    events = client->Poll();
  }
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].answer.ok()) << events[0].answer.status();
  client->Close(1);
}

}  // namespace
}  // namespace freshet
