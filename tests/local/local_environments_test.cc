#include "local/local_environments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class LocalEnvironmentsTest : public testing::Test {
 protected:
  // Polls and returns the only event.
  EpisodeEvent Only() {
    std::vector<EpisodeEvent> events = environments_.Poll();
    EXPECT_THAT(events, SizeIs(1));
    return events.empty() ? EpisodeEvent{} : events[0];
  }
  static EpisodeStart Guess(uint64_t seed) {
    return {"guess_number", seed, {{"max", "2"}, {"guesses", "2"}}};
  }

  LocalEnvironments environments_{BuiltinEnvironments()};
};

TEST_F(LocalEnvironmentsTest, PlaysAnEpisodeToItsEnd) {
  environments_.Reset(7, Guess(1));
  const EpisodeEvent start = Only();
  EXPECT_EQ(start.episode, 7);
  ASSERT_TRUE(start.answer.ok()) << start.answer.status();
  EXPECT_FALSE(start.answer->terminated);
  // There are two numbers, so at the latest the second guess finds the secret.
  environments_.Step(7, "0");
  EpisodeEvent event = Only();
  ASSERT_TRUE(event.answer.ok());
  if (!event.answer->terminated) {
    EXPECT_EQ(event.answer->observation, ">");
    environments_.Step(7, "1");
    event = Only();
  }
  EXPECT_TRUE(event.answer->terminated);
  EXPECT_EQ(event.answer->reward, 1);
}

TEST_F(LocalEnvironmentsTest, TheSameSeedIsTheSameEpisode) {
  std::vector<std::string> answers[2];
  for (int64_t run = 0; run < 2; ++run) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const auto episode = static_cast<int64_t>(8 * run) + static_cast<int64_t>(seed);
      environments_.Reset(episode, Guess(seed));
      environments_.Step(episode, "0");
      answers[run].push_back(environments_.Poll().at(1).answer->observation);
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_THAT(answers[0], testing::Contains(testing::Ne(answers[0][0]))) << "seeds differ";
}

TEST_F(LocalEnvironmentsTest, AnInvalidActionIsToldAsSuch) {
  environments_.Reset(7, Guess(1));
  EXPECT_FALSE(Only().answer->invalid);
  environments_.Step(7, "x");
  const EpisodeEvent event = Only();
  EXPECT_TRUE(event.answer->invalid);
  EXPECT_EQ(event.answer->observation, "!");
}

TEST_F(LocalEnvironmentsTest, AnErrorEndsTheEpisode) {
  environments_.Reset(1, {"guess_number", 1, {{"max", "many"}}});
  EXPECT_EQ(Only().answer.status().code(), absl::StatusCode::kInvalidArgument);
  environments_.Step(1, "0");
  EXPECT_EQ(Only().answer.status().code(), absl::StatusCode::kFailedPrecondition);
  environments_.Reset(2, {"no_such_environment", 1, {}});
  EXPECT_EQ(Only().answer.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LocalEnvironmentsTest, NothingIsHeardOfAClosedEpisode) {
  environments_.Reset(1, Guess(1));
  environments_.Reset(2, Guess(2));
  environments_.Close(1);
  EXPECT_EQ(Only().episode, 2);
  EXPECT_THAT(environments_.Poll(), IsEmpty());
}

}  // namespace
}  // namespace freshet
