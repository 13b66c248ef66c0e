// The life of one sample in the logs of real processes.

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/base/trace.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

// The lines of the log of all processes that are JSON objects, by role.
std::map<std::string, std::vector<Json>> LinesOf(const ClusterProcesses& cluster,
                                                 const std::vector<std::string>& names) {
  std::map<std::string, std::vector<Json>> lines;
  for (const std::string& name : names) {
    std::istringstream log(cluster.Log(name));
    for (std::string line; std::getline(log, line);) {
      if (!line.starts_with('{') || !Json::accept(line)) continue;
      Json json = Json::parse(line);
      EXPECT_EQ(json.value("worker", ""), name) << line;
      lines[json.value("role", "")].push_back(std::move(json));
    }
  }
  return lines;
}

TEST(ClusterTrace, TheLogsOfAllRolesTellTheLifeOfASample) {
  FRESHET_SKIP_WITHOUT_REDIS();
  const std::vector<std::string> names = {"controller", "rollout-0", "reward-0", "env-0",
                                          "trainer-0"};
  ClusterOptions options;
  options.simulated = false;
  options.flags = [](const std::string&) {
    return std::vector<std::string>{"--log-format", "json"};
  };
  ClusterProcesses cluster(options);
  const absl::Status up = cluster.Start({names.begin() + 1, names.end()});
  ASSERT_TRUE(up.ok()) << up;
  const absl::Status submitted =
      cluster.Submit("j", QuickJob(4,
                                   "environment: {type: guess_number, max_turns: 2, "
                                   "max_turn_tokens: 8, options: {max: \"10\"}}\n"
                                   "reward: {components: {won: {type: environment}}}\n"
                                   "output: {trace_ratio: 1}\n"));
  ASSERT_TRUE(submitted.ok()) << submitted;
  ASSERT_TRUE(cluster.AwaitState("j", job::v1::JOB_STATE_SUCCEEDED));

  const std::map<std::string, std::vector<Json>> lines = LinesOf(cluster, names);
  for (const char* role : {"controller", "rollout", "reward", "env", "trainer"}) {
    EXPECT_TRUE(lines.contains(role)) << role;
  }
  std::string trace;
  for (const Json& line : lines.at("trainer")) {
    if (line.value("event", "") != "sample_trained") continue;
    EXPECT_EQ(line.value("trace", ""), TraceIdOf(line.value("sample", "")));
    trace = line.value("trace", "");
  }
  ASSERT_NE(trace, "");
  // By "ROLE event": when it was.
  std::map<std::string, std::string> life;
  for (const auto& [role, of_role] : lines) {
    for (const Json& line : of_role) {
      if (line.value("trace", "") != trace) continue;
      life[role + " " + line.value("event", "")] = line.value("time", "");
      if (role != "env") {
        EXPECT_EQ(line.value("job", ""), "j") << line;
      }
    }
  }
  const std::vector<std::string> stages = {"rollout sample_leased", "env episode_begins",
                                           "env episode_ended", "reward sample_scored",
                                           "trainer sample_trained"};
  std::string before;
  for (const std::string& stage : stages) {
    ASSERT_TRUE(life.contains(stage)) << stage;
    EXPECT_LE(before, life[stage]) << stage;
    before = life[stage];
  }
  EXPECT_TRUE(life.contains("rollout sample_stored"));
  EXPECT_EQ(life.size(), stages.size() + 1);
}

}  // namespace
}  // namespace freshet
