// freshet-env as a separate process.

#include <grpcpp/grpcpp.h>

#include <csignal>
#include <memory>
#include <string>

#include "freshet/env/v1/env_service.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(20);

class EnvProcessTest : public testing::Test {
 protected:
  std::unique_ptr<ChildProcess> Start(std::vector<std::string> flags = {}) {
    std::vector<std::string> argv = {std::string(FRESHET_BIN_DIR) + "/freshet-env", "--listen",
                                     Address()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return std::make_unique<ChildProcess>(argv);
  }
  std::string Address() const { return "unix:" + folder_.path() + "/env.sock"; }

  const ScratchFolder folder_;
};

TEST_F(EnvProcessTest, PlaysAnEpisodeAloneAndDrains) {
  const auto process = Start();
  ASSERT_TRUE(process->AwaitOutput("ready env grpc=", kGuard));
  const auto stub = env::v1::EnvService::NewStub(
      grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto stream = stub->Episode(&context);
  env::v1::EpisodeRequest request;
  request.mutable_reset()->set_environment("calculator");
  env::v1::EpisodeReply reply;
  ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
  ASSERT_EQ(reply.observation().back(), '=');

  // On SIGTERM it lets the episode finish.
  process->Signal(SIGTERM);
  ASSERT_TRUE(process->AwaitOutput("event=drain", kGuard));
  const std::string expression(reply.observation(), 0, reply.observation().size() - 1);
  request.mutable_step()->set_action("[" + expression + "]");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
  const std::string value(reply.observation(), 0, reply.observation().size() - 1);
  request.mutable_step()->set_action(value);
  ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
  EXPECT_EQ(reply.reward(), 1.0);
  EXPECT_TRUE(reply.terminated());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  const ChildResult result = process->Wait(kGuard);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(EnvProcessTest, RefusesABadCommandLine) {
  EXPECT_EQ(Start({"--max-episodes", "0"})->Wait(kGuard).exit_code, 2);
  EXPECT_EQ(Start({"--controller", "nowhere"})->Wait(kGuard).exit_code, 2);
  EXPECT_EQ(Start({"--redis", "localhost:1"})->Wait(kGuard).exit_code, 2);
}

}  // namespace
}  // namespace freshet
