#include "cli/commands/completion.h"

#include <string>

#include "cli/cluster/cluster_commands.h"
#include "cli/commands/checkpoint_commands.h"
#include "cli/commands/submit_commands.h"
#include "cli/commands/tool_commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Script(const std::string& shell) {
  CommandLine app("Test", "freshet");
  ConnectionFlags connection;
  AddSubmitCommands(app, connection);
  AddClusterCommands(app, connection);
  AddCheckpointCommands(app, connection);
  AddToolCommands(app, connection);
  return CompletionScript(app.Describe(), shell);
}

TEST(Completion, BashKnowsCommandsFlagsAndJobs) {
  EXPECT_THAT(Script("bash"),
              AllOf(HasSubstr("'') words='submit watch cluster checkpoint"),
                    HasSubstr("'checkpoint') words='list export"), HasSubstr("--dry-run"),
                    HasSubstr("--min-gain"), HasSubstr("'cluster') words='up down status health"),
                    HasSubstr("'cluster health') words='--help -h --wait"),
                    HasSubstr("freshet list -o name"),
                    HasSubstr("'completion') words='--help -h bash zsh fish'"),
                    HasSubstr("complete -o default -F _freshet freshet\n")));
}

TEST(Completion, ZshAndFishDescribeThem) {
  EXPECT_THAT(Script("zsh"), AllOf(HasSubstr("'submit:send a job to a cluster; prints its id'"),
                                   HasSubstr("compdef _freshet freshet")));
  EXPECT_THAT(Script("fish"),
              AllOf(HasSubstr("complete -c freshet -n '__freshet_exactly ' -f -a submit -d "),
                    HasSubstr("-n '__freshet_within checkpoint export' -l step")));
}

}  // namespace
}  // namespace freshet
