#include "env_workers/episode_session.h"

#include <limits>

#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

class BrokenEnvironment final : public Environment {
 public:
  absl::StatusOr<EnvironmentReply> Reset(uint64_t, const EnvironmentOptions&) override {
    return EnvironmentReply{};
  }
  absl::StatusOr<EnvironmentReply> Step(std::string_view) override {
    EnvironmentReply reply;
    reply.reward = std::numeric_limits<double>::infinity();
    return reply;
  }
};

TEST(EpisodeSession, RefusesAStepWithoutAReset) {
  EpisodeSession session(BuiltinEnvironments());
  EXPECT_EQ(session.Step("1").status().code(), kPrecondition);
}

TEST(EpisodeSession, PlaysEpisodesOneAfterTheOther) {
  EpisodeSession session(BuiltinEnvironments());
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto reset = session.Reset("guess_number", seed, {{"guesses", "2"}});
    ASSERT_TRUE(reset.ok());
    EXPECT_EQ(session.turns(), 0);
    ASSERT_TRUE(session.Step("x").ok());
    EXPECT_TRUE(session.running());
    const auto last = session.Step("x");
    ASSERT_TRUE(last.ok());
    EXPECT_TRUE(last->truncated);
    EXPECT_FALSE(session.running());
    EXPECT_EQ(session.turns(), 2);
    EXPECT_EQ(session.Step("x").status().code(), kPrecondition);
  }
}

TEST(EpisodeSession, ChangesTheEnvironmentAtAReset) {
  EpisodeSession session(BuiltinEnvironments());
  ASSERT_TRUE(session.Reset("guess_number", 1, {}).ok());
  const auto reset = session.Reset("calculator", 1, {});
  ASSERT_TRUE(reset.ok());
  EXPECT_EQ(session.environment(), "calculator");
  EXPECT_EQ(reset->observation.back(), '=');
}

TEST(EpisodeSession, AFailedResetLeavesNoEpisode) {
  EpisodeSession session(BuiltinEnvironments());
  ASSERT_TRUE(session.Reset("guess_number", 1, {}).ok());
  EXPECT_EQ(session.Reset("chess", 1, {}).status().code(), kInvalid);
  EXPECT_EQ(session.Step("1").status().code(), kPrecondition);
  EXPECT_EQ(session.Reset("guess_number", 1, {{"max", "x"}}).status().code(), kInvalid);
  EXPECT_FALSE(session.running());
  EXPECT_TRUE(session.Reset("guess_number", 1, {}).ok());
}

TEST(EpisodeSession, BoundsWhatAClientSends) {
  EpisodeSession session(BuiltinEnvironments());
  EnvironmentOptions many;
  for (size_t i = 0; i <= EpisodeSession::kMaxOptions; ++i) many[std::to_string(i)] = "";
  EXPECT_EQ(session.Reset("guess_number", 1, many).status().code(), kInvalid);
  const EnvironmentOptions big = {{"field", std::string(EpisodeSession::kMaxOptionBytes, 'x')}};
  EXPECT_EQ(session.Reset("guess_number", 1, big).status().code(), kInvalid);
  ASSERT_TRUE(session.Reset("guess_number", 1, {}).ok());
  EXPECT_EQ(session.Step(std::string(EpisodeSession::kMaxActionBytes + 1, 'x')).status().code(),
            kInvalid);
}

TEST(EpisodeSession, ARewardThatIsNotFiniteIsAFailure) {
  EnvironmentRegistry registry;
  ASSERT_TRUE(
      registry.Add({"broken", "", {}, [] { return std::make_unique<BrokenEnvironment>(); }}).ok());
  EpisodeSession session(registry);
  ASSERT_TRUE(session.Reset("broken", 1, {}).ok());
  EXPECT_EQ(session.Step("1").status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(session.running());
}

}  // namespace
}  // namespace freshet
