#include "cli/client/controller_links.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/error_details.h"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// No server listens on this address.
constexpr char kNobody[] = "127.0.0.1:1";

absl::Status Refusal(const char* reason, const std::string& leader = "") {
  runtime::ErrorDetails details;
  details.reason = reason;
  if (!leader.empty()) details.metadata[runtime::kLeaderMetadata] = leader;
  return runtime::WithDetails(absl::UnavailableError("not now"), details);
}

class ControllerLinksTest : public testing::Test {
 protected:
  std::unique_ptr<ControllerLinks> Links(const std::vector<std::string>& addresses) {
    auto links = ControllerLinks::Create(addresses, runtime::ChannelOptions());
    EXPECT_TRUE(links.ok()) << links.status();
    return *std::move(links);
  }
  FakeJobService one_;
  FakeJobService two_;
};

TEST_F(ControllerLinksTest, PassesOverWhoeverIsNotThere) {
  const auto links = Links({kNobody, one_.address(), two_.address()});
  EXPECT_EQ(links->Choose().address, one_.address());
  EXPECT_EQ(links->Choose().address, one_.address());
}

TEST_F(ControllerLinksTest, TheOnlyOneIsNotAskedBeforehand) {
  EXPECT_EQ(Links({kNobody})->Choose().address, kNobody);
  EXPECT_EQ(Links({kNobody, "127.0.0.1:2"})->Choose().address, kNobody);
}

TEST_F(ControllerLinksTest, LeavesWhoDoesNotAnswerForTheNext) {
  const auto links = Links({one_.address(), two_.address()});
  links->Report(links->Choose(), absl::UnavailableError("gone"));
  EXPECT_EQ(links->Choose().address, two_.address());
  links->Report(links->Choose(), absl::NotFoundError("no job"));
  links->Report(links->Choose(), Refusal("TRY_AGAIN"));
  EXPECT_EQ(links->Choose().address, two_.address());
}

TEST_F(ControllerLinksTest, FollowsTheLeaderThatItKnows) {
  const auto links = Links({one_.address(), two_.address()});
  links->Report(links->Choose(), Refusal(runtime::kNotLeaderReason, "10.0.0.1:7070"));
  EXPECT_EQ(links->Choose().address, one_.address());
  links->Report(links->Choose(), Refusal(runtime::kNotLeaderReason, two_.address()));
  EXPECT_EQ(links->Choose().address, two_.address());
}

TEST_F(ControllerLinksTest, OnlyWhatMayHappenTwiceIsTriedAgain) {
  const auto links = Links({one_.address(), two_.address()});
  EXPECT_TRUE(links->MayTryAgain(Refusal(runtime::kNotLeaderReason), false));
  EXPECT_FALSE(links->MayTryAgain(Refusal(runtime::kLeaderAwayReason), false));
  EXPECT_TRUE(links->MayTryAgain(Refusal(runtime::kLeaderAwayReason), true));
  EXPECT_FALSE(links->MayTryAgain(absl::UnavailableError("gone"), false));
  EXPECT_TRUE(links->MayTryAgain(absl::UnavailableError("gone"), true));
  EXPECT_FALSE(links->MayTryAgain(Refusal("TRY_AGAIN"), true));
  EXPECT_FALSE(Links({kNobody})->MayTryAgain(absl::UnavailableError("gone"), true));
}

class FailoverTest : public CommandFixture {
 protected:
  FailoverTest() { service_.AddJob(EndedJob("a", job::v1::JOB_STATE_SUCCEEDED), {}); }
  ChildResult RunAt(const std::string& servers, std::vector<std::string> args) {
    args.insert(args.end(), {"--server", servers});
    return Run(std::move(args));
  }
};

TEST_F(FailoverTest, CommandsGoToAControllerThatAnswers) {
  const std::string servers = std::string(kNobody) + "," + service_.address();
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"get", "a"},
           {"list"},
           {"pause", "a"},
           {"logs"},
           {"submit", FRESHET_SOURCE_DIR "/examples/smoke.yaml"}}) {
    const ChildResult result = RunAt(servers, args);
    EXPECT_EQ(result.exit_code, 0) << args[0] << ": " << result.err;
  }
  EXPECT_EQ(service_.calls()["Submit"], 1);
}

TEST_F(FailoverTest, CallsWaitForTheNextLeader) {
  for (const char* method : {"Pause", "Submit", "Logs"}) {
    for (int i = 0; i < 5; ++i) {
      service_.FailNext(method, Refusal(runtime::kNotLeaderReason));
    }
  }
  EXPECT_EQ(Run({"pause", "a"}).exit_code, 0);
  EXPECT_EQ(Run({"submit", FRESHET_SOURCE_DIR "/examples/smoke.yaml"}).exit_code, 0);
  EXPECT_EQ(Run({"logs"}).exit_code, 0);
}

TEST_F(FailoverTest, ASubmitWithoutAnIdIsNotMadeTwice) {
  service_.FailNext("Submit", Refusal(runtime::kLeaderAwayReason));
  EXPECT_EQ(Run({"submit", FRESHET_SOURCE_DIR "/examples/smoke.yaml"}).exit_code, 7);
  EXPECT_EQ(service_.calls()["Submit"], 1);
}

TEST_F(FailoverTest, AListWithoutAnyOfThemIsNamed) {
  const ChildResult result = RunAt("127.0.0.1:1,127.0.0.1:2", {"list"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1,127.0.0.1:2 (--server)"));
}

}  // namespace
}  // namespace freshet
