#ifndef FRESHET_TESTS_CLI_COMMAND_FIXTURE_H_
#define FRESHET_TESTS_CLI_COMMAND_FIXTURE_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/fake_job_service.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"

namespace freshet {

// Runs the built `freshet` in an empty folder against an in-process service.
class CommandFixture : public testing::Test {
 protected:
  CommandFixture() {
    ::setenv("FRESHET_SERVER", service_.address().c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", folder_.path().c_str(), 1);
    ::setenv("TMPDIR", folder_.path().c_str(), 1);
    ::unsetenv("FRESHET_TOKEN");
  }
  // The next test must not create its folder inside this one.
  ~CommandFixture() override { ::unsetenv("TMPDIR"); }

  std::unique_ptr<ChildProcess> Start(std::vector<std::string> args) {
    args.insert(args.begin(), FRESHET_BIN_DIR "/freshet");
    return std::make_unique<ChildProcess>(args, ChildOptions{folder_.path(), ""});
  }
  ChildResult Run(std::vector<std::string> args) {
    ChildResult result = Start(std::move(args))->Wait(absl::Seconds(30));
    EXPECT_FALSE(result.timed_out);
    return result;
  }

  const ScratchFolder folder_;
  FakeJobService service_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_CLI_COMMAND_FIXTURE_H_
