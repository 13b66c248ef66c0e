// Error messages of commands, and the exit codes that scripts rely on.
#include "services/runtime/error_details.h"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

class CommandErrorTest : public CommandFixture {};

TEST_F(CommandErrorTest, NoConnection) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"list"},
                                             {"get", "a"},
                                             {"watch", "a"},
                                             {"top"},
                                             {"logs", "-f"},
                                             {"scale", "env", "1"}}) {
    std::vector<std::string> with = args;
    with.insert(with.end(), {"--server", "127.0.0.1:1"});
    const ChildResult result = Run(with);
    EXPECT_EQ(result.exit_code, 7) << args[0];
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("127.0.0.1:1 (--server)"), HasSubstr("freshet cluster up")))
        << args[0];
  }
}

TEST_F(CommandErrorTest, FlagsOfTheServerMayComeFirst) {
  EXPECT_EQ(Run({"--server", "127.0.0.1:1", "list"}).exit_code, 7);
  EXPECT_EQ(Run({"list"}).exit_code, 0);
}

TEST_F(CommandErrorTest, ContextsComeFromTheConfiguration) {
  folder_.Write("freshet/config.yaml",
                "contexts:\n  here: {address: \"" + service_.address() + "\"}\n");
  ::setenv("FRESHET_SERVER", "127.0.0.1:1", 1);
  EXPECT_EQ(Run({"list"}).exit_code, 7);
  EXPECT_EQ(Run({"list", "--context", "here"}).exit_code, 0);
  EXPECT_EQ(Run({"list", "--server", "here"}).exit_code, 0);
  const ChildResult unknown = Run({"list", "--context", "there"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there are here"));
}

TEST_F(CommandErrorTest, EachDetailOfARefusalIsALine) {
  runtime::ErrorDetails details;
  details.violations = {{"model.path", "no such directory"}, {"reward", "no component"}};
  service_.FailNext("Submit",
                    runtime::WithDetails(absl::InvalidArgumentError("2 errors"), details));
  const ChildResult result = Run({"submit", FRESHET_SOURCE_DIR "/examples/smoke.yaml"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "freshet: model.path: no such directory\nfreshet: reward: no component\n");
  EXPECT_EQ(result.out, "");
}

TEST_F(CommandErrorTest, AFaultOfTheServerIsInternal) {
  service_.FailNext("List", absl::InternalError("broken"));
  EXPECT_EQ(Run({"list"}).exit_code, 1);
}

TEST_F(CommandErrorTest, ATokenIsNotSentToOtherMachinesOverPlaintext) {
  folder_.Write("token", "secret\n");
  EXPECT_EQ(Run({"list", "--token-file", "token"}).exit_code, 0) << "over loopback";
  EXPECT_EQ(service_.last_authorization(), "Bearer secret");
  const ChildResult result = Run({"list", "--token-file", "token", "--server", "192.0.2.1:7070"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::Not(HasSubstr("secret")));
  EXPECT_EQ(Run({"list", "--ca", "absent.pem"}).exit_code, 3);
}

TEST_F(CommandErrorTest, EveryErrorIsALineWithThePrefix) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"get", "nobody"}, {"list", "--state", "x"}, {"metrics", "nobody"}}) {
    EXPECT_THAT(Run(args).err, MatchesRegex("freshet: [^\n]*;[^\n]*\n")) << args[0];
  }
}

}  // namespace
}  // namespace freshet
