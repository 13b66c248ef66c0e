// Follows one sample through the logs of real processes.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::UnorderedElementsAre;

// The JSON lines of all processes' logs, by role.
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

// A log line about a sample.
struct Line {
  std::string role;
  size_t place = 0;  // index among the lines of its process
  Json json = Json::object();
};

// The trace id of the first trained sample, or "".
std::string FirstTrained(const std::vector<Json>& trainer) {
  for (const Json& line : trainer) {
    if (line.value("event", "") == "sample_trained") return line.value("trace", "");
  }
  return "";
}

std::vector<Line> LifeOf(const std::map<std::string, std::vector<Json>>& lines,
                         const std::string& trace) {
  std::vector<Line> life;
  for (const auto& [role, of_role] : lines) {
    for (size_t place = 0; place < of_role.size() && !trace.empty(); ++place) {
      if (of_role[place].value("trace", "") != trace) continue;
      life.push_back({role, place, of_role[place]});
    }
  }
  return life;
}

// "ROLE event" of each line.
std::vector<std::string> Events(const std::vector<Line>& life) {
  std::vector<std::string> events;
  for (const Line& line : life) events.push_back(line.role + " " + line.json.value("event", ""));
  return events;
}

const Line& Find(const std::vector<Line>& life, const std::string& event) {
  static const Line none;
  for (const Line& line : life) {
    if (line.json.value("event", "") == event) return line;
  }
  ADD_FAILURE() << "no line of " << event;
  return none;
}

int64_t Number(const Line& line, const std::string& key) {
  return std::atoll(line.json.value(key, "").c_str());
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

  // Processes flush their logs at different times; wait for all stages.
  std::map<std::string, std::vector<Json>> lines;
  std::vector<Line> life;
  ASSERT_TRUE(ClusterProcesses::Await([&] {
    lines = LinesOf(cluster, names);
    life = LifeOf(lines, FirstTrained(lines["trainer"]));
    return Events(life).size() == 6;
  })) << life.size()
      << " lines";
  for (const char* role : {"controller", "rollout", "reward", "env", "trainer"}) {
    EXPECT_TRUE(lines.contains(role)) << role;
  }
  EXPECT_THAT(Events(life), UnorderedElementsAre("rollout sample_leased", "env episode_begins",
                                                 "env episode_ended", "rollout sample_stored",
                                                 "reward sample_scored", "trainer sample_trained"));
  for (const Line& line : life) {
    if (line.role != "env") {
      EXPECT_EQ(line.json.value("job", ""), "j") << line.json;
      EXPECT_EQ(line.json.value("trace", ""), TraceIdOf(line.json.value("sample", "")));
    }
  }
  // Clocks of different processes are not comparable. Order lines of one process by position, and
  // lines of different processes by the versions they name: an engine's version never decreases,
  // and a step trains only on samples of versions before it.
  const Line& leased = Find(life, "sample_leased");
  const Line& stored = Find(life, "sample_stored");
  const Line& trained = Find(life, "sample_trained");
  EXPECT_LT(leased.place, stored.place);
  EXPECT_LT(Find(life, "episode_begins").place, Find(life, "episode_ended").place);
  EXPECT_LE(Number(leased, "version"), Number(trained, "min_version"));
  EXPECT_LE(Number(trained, "min_version"), Number(stored, "version"));
  EXPECT_LT(Number(stored, "version"), Number(trained, "step"));
}

}  // namespace
}  // namespace freshet
