// get, list, describe, samples, metrics.
#include "nlohmann/json.hpp"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class QueryCommandTest : public CommandFixture {
 protected:
  QueryCommandTest() {
    for (const char* id : {"a", "b", "c"}) {
      service_.AddJob(EndedJob(id, JOB_STATE_SUCCEEDED), EventsOfRun(5, JOB_STATE_SUCCEEDED));
    }
    service_.AddJob(EndedJob("d", JOB_STATE_FAILED, "disk full"), {});
  }
};

TEST_F(QueryCommandTest, ListTurnsAllPages) {
  EXPECT_EQ(Run({"list", "-o", "name"}).out, "a\nb\nc\nd\n");
  EXPECT_EQ(service_.calls()["List"], 2);
  const ChildResult table = Run({"list"});
  EXPECT_THAT(table.out, StartsWith("ID  STATE      STEP  REWARD"));
  EXPECT_EQ(Json::parse(Run({"list", "-o", "json"}).out).size(), 4U);
}

TEST_F(QueryCommandTest, ListByState) {
  EXPECT_EQ(Run({"list", "--state", "failed", "-o", "name"}).out, "d\n");
  EXPECT_EQ(Run({"list", "--state", "failed,succeeded", "-o", "name"}).out, "a\nb\nc\nd\n");
  const ChildResult none = Run({"list", "--state", "paused"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("freshet submit"));
}

TEST_F(QueryCommandTest, GetInEveryFormat) {
  const Json job = Json::parse(Run({"get", "d", "-o", "json"}).out);
  EXPECT_EQ(job["state"], "FAILED");
  EXPECT_EQ(job["step"], 3);
  EXPECT_THAT(Run({"get", "d", "-o", "yaml"}).out, HasSubstr("reason: \"disk full\"\n"));
  EXPECT_EQ(Run({"get", "d", "-o", "name"}).out, "d\n");
  EXPECT_THAT(Run({"get", "d", "-o", "wide"}).out, HasSubstr("disk full"));
  EXPECT_EQ(Run({"get", "d", "-o", "xml"}).exit_code, 2);
}

TEST_F(QueryCommandTest, DescribeSaysWhy) {
  EXPECT_THAT(Run({"describe", "d"}).out, HasSubstr("state       FAILED: disk full\n"));
}

TEST_F(QueryCommandTest, SamplesAsTextAndAsRows) {
  service_.SetSamples(
      {R"({"uid": "a/1/0/0", "prompt": "1+1=", "completion": "2"})", R"({"uid": "a/2/0/0"})"});
  EXPECT_THAT(Run({"samples", "a"}).out, AllOf(HasSubstr("    1+1=\n"), HasSubstr("a/2/0/0")));
  EXPECT_EQ(Json::parse(Run({"samples", "a", "-n", "1", "--json"}).out)["completion"], "2");
}

TEST_F(QueryCommandTest, MetricsAsTablePlotAndRows) {
  const ChildResult table = Run({"metrics", "a"});
  EXPECT_THAT(table.out, AllOf(StartsWith("STEP  REWARD"), HasSubstr("\n5     0.500")));
  EXPECT_THAT(Run({"metrics", "a", "--plot", "reward", "--ascii"}).out,
              AllOf(HasSubstr("a reward  last 0.5\n"), HasSubstr("*")));
  const std::string rows = Run({"metrics", "a", "--json"}).out;
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 5);
  const ChildResult unknown = Run({"metrics", "a", "--plot", "los"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("loss"));
}

TEST_F(QueryCommandTest, NoColorInAPipe) {
  EXPECT_THAT(Run({"describe", "d"}).out, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace freshet
