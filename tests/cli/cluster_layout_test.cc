#include "cli/cluster/cluster_layout.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

ClusterLayout Layout() {
  ClusterLayout layout;
  layout.folder = "/state";
  layout.binary_folder = "/bin";
  layout.redis_program = "/usr/bin/redis-server";
  layout.redis_port = 6000;
  layout.controller_ports = {7070, 7075};
  layout.data_roots = {"/home/ann", "/data"};
  return layout;
}

TEST(ClusterLayout, CommandLines) {
  EXPECT_THAT(*CommandOf(Layout(), {"redis", "", 1}),
              ElementsAre("/usr/bin/redis-server", "/state/redis.conf"));
  EXPECT_THAT(
      *CommandOf(Layout(), {"controller", "", 2}),
      ElementsAre("/bin/freshet-controller", "--name", "controller-2", "--http-listen",
                  "127.0.0.1:0", "--cluster-token-file", "/state/cluster.token", "--redis",
                  "127.0.0.1:6000", "--redis-user", "controller", "--redis-password-file",
                  "/state/redis.controller.password", "--data-root", "/home/ann", "--data-root",
                  "/data", "--listen", "127.0.0.1:7075", "--status-listen", "127.0.0.1:0"));
  EXPECT_THAT(*CommandOf(Layout(), {"rollout", "small", 1}),
              AllOf(Contains("--pool"), Contains("small"), Contains("rollout-small-1"),
                    Contains("127.0.0.1:7070,127.0.0.1:7075"), Not(Contains("--state-dir")),
                    Not(Contains("--data-root"))));
  EXPECT_THAT(*CommandOf(Layout(), {"trainer", "", 1}),
              AllOf(Contains("--state-dir"), Contains("/state/trainer"), Contains("/home/ann"),
                    Contains("/data")));
}

TEST(ClusterLayout, RolloutsWithAServerGetItsFlags) {
  ClusterLayout layout = Layout();
  layout.engine = "vllm";
  layout.engine_servers = {{"127.0.0.1:8000", "/dev/shm/a"}, {"127.0.0.1:8001", "/dev/shm/b"}};
  layout.engine_weights = "nccl";
  EXPECT_THAT(*CommandOf(layout, {"rollout", "", 2}),
              IsSupersetOf({"--engine", "vllm", "--engine-address", "127.0.0.1:8001",
                            "--engine-dir", "/dev/shm/b", "--engine-weights", "nccl"}));
  for (const ProcessId& id : {ProcessId{"rollout", "", 3}, ProcessId{"rollout", "small", 1},
                              ProcessId{"trainer", "", 1}}) {
    EXPECT_THAT(*CommandOf(layout, id), Not(Contains("--engine"))) << id.Name();
  }
}

TEST(ClusterLayout, RewardsGetWhatIsOffered) {
  ClusterLayout layout = Layout();
  EXPECT_THAT(*CommandOf(layout, {"reward", "", 1}),
              AllOf(Not(Contains("--python-rewards")), Not(Contains("--sandbox"))));
  layout.offered.python_rewards = "127.0.0.1:7080";
  layout.offered.sandbox.address = "http://127.0.0.1:8100";
  layout.offered.judge = {"https://h/v1", "/ca.pem", "/key"};
  EXPECT_THAT(*CommandOf(layout, {"reward", "", 1}),
              IsSupersetOf({"--python-rewards", "127.0.0.1:7080", "--sandbox",
                            "http://127.0.0.1:8100", "--judge", "https://h/v1", "--judge-ca",
                            "/ca.pem", "--judge-token-file", "/key"}));
}

TEST(ClusterLayout, ModelServersAreParsed) {
  const absl::StatusOr<std::vector<ModelServer>> servers =
      ParseModelServers({"rm=/models/rm", "judge=a=b"});
  ASSERT_TRUE(servers.ok());
  ASSERT_EQ(servers->size(), 2U);
  EXPECT_EQ((*servers)[0].name, "rm");
  EXPECT_EQ((*servers)[0].folder, "/models/rm");
  EXPECT_EQ((*servers)[1].folder, "a=b");
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"rm"}, "want NAME=DIR"},
      {{"rm="}, "want NAME=DIR"},
      {{"=/m"}, "the name is not valid"},
      {{"-rm=/m"}, "the name is not valid"},
      {{"../rm=/m"}, "the name is not valid"},
      {{"rm=/m", "rm=/n"}, "rm is given twice"}};
  for (const auto& [flags, part] : bad) {
    const absl::Status status = ParseModelServers(flags).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flags.back();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--model-server " + flags.back()), HasSubstr(part)));
  }
}

TEST(ClusterLayout, AModelServerListensOnItsPort) {
  ClusterLayout layout = Layout();
  layout.model_servers = {{"judge", "/models/a", 8001}, {"rm", "/models/b", 8002}};
  EXPECT_THAT(*CommandOf(layout, {"model", "rm", 1}),
              ElementsAre("/bin/freshet-local", "serve", "/models/b", "--name", "rm", "--listen",
                          "127.0.0.1:8002", "--http-listen", "127.0.0.1:0"));
  EXPECT_EQ(PortOf(layout, {"model", "rm", 1}), 8002);
  EXPECT_TRUE(absl::IsNotFound(CommandOf(layout, {"model", "other", 1}).status()));
}

TEST(ClusterLayout, AllControllersAreNamed) {
  EXPECT_EQ(Layout().Controllers(), "127.0.0.1:7070,127.0.0.1:7075");
}

TEST(ClusterLayout, RedisConfig) {
  EXPECT_THAT(RedisConfigText(Layout(), "user default on\n"),
              AllOf(HasSubstr("user default on\n"), HasSubstr("appendfsync always\n"),
                    HasSubstr("bind 127.0.0.1\n"), HasSubstr("appendonly yes\n")));
}

TEST(ClusterLayout, ReadyLines) {
  const ProcessId rollout{"rollout", "", 1};
  const std::optional<ReadyLine> line =
      ParseReadyLine(rollout, "ready rollout grpc=127.0.0.1:1 http=127.0.0.1:2");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->grpc, "127.0.0.1:1");
  EXPECT_EQ(line->http, "127.0.0.1:2");
  EXPECT_EQ(line->status, "");
  EXPECT_EQ(
      ParseReadyLine({"controller", "", 1}, "ready controller grpc=h:1 http=h:2 status=127.0.0.1:3")
          ->status,
      "127.0.0.1:3");
  EXPECT_EQ(ParseReadyLine(rollout, "ready rollout grpc=h:1 http=-")->http, "");
  EXPECT_FALSE(ParseReadyLine(rollout, "ready trainer grpc=h:1 http=h:2"));
  EXPECT_FALSE(ParseReadyLine(rollout, "ready rollouts"));
  EXPECT_FALSE(ParseReadyLine(rollout, "not ready rollout"));
  EXPECT_FALSE(ParseReadyLine(rollout, ""));
  EXPECT_TRUE(ParseReadyLine({"redis", "", 1}, "7:M 1 Jan * Ready to accept connections tcp"));
  EXPECT_EQ(ParseReadyLine(rollout, "ready rollout grpc=" + std::string(1000, 'x'))->grpc, "");
  const ProcessId model{"model", "rm", 1};
  const std::optional<ReadyLine> serving =
      ParseReadyLine(model, "serving on http://127.0.0.1:8000 http=127.0.0.1:2");
  ASSERT_TRUE(serving.has_value());
  EXPECT_EQ(serving->api, "http://127.0.0.1:8000");
  EXPECT_EQ(serving->http, "127.0.0.1:2");
  EXPECT_FALSE(ParseReadyLine(model, "ready model grpc=h:1 http=h:2"));
  EXPECT_FALSE(ParseReadyLine(rollout, "serving on http://127.0.0.1:8000"));
}

TEST(ClusterLayout, Names) {
  for (const char* good : {"default", "a", "my_cluster-2.x"}) EXPECT_TRUE(IsClusterName(good));
  for (const std::string bad : {"", ".", "../x", "a/b", "a b", ".hidden", "-a"}) {
    EXPECT_FALSE(IsClusterName(bad)) << bad;
  }
  EXPECT_TRUE(IsClusterName(std::string(63, 'a')));
  EXPECT_FALSE(IsClusterName(std::string(64, 'a')));
}

}  // namespace
}  // namespace freshet
