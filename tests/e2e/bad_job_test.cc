// Invalid jobs: one line per error with its place and fix, exit code 3, and no files left behind.
// tests/job and tests/dataset cover the individual errors.
#include "tests/e2e/refusal_fixture.h"

namespace freshet {
namespace {

class BadJobTest : public RefusalFixture {};

TEST_F(BadJobTest, EveryErrorOfTheFileIsToldUpToFive) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: -1}";
  job["trainer"] = "{steps: 0}";
  job["optimizer"] = "{learning_rate: 0}";
  RefuseJob(job, {"staleness.max", "trainer.steps", "optimizer.learning_rate"}, 3);
  for (const char* key : {"aa", "bb", "cc", "dd"}) job[key] = "1";
  const std::vector<std::string> lines = RefuseJob(job, {"job.yaml"}, 6);
  EXPECT_EQ(lines.back(), "freshet: and 2 more");

  folder_.Write("rows.jsonl", "{\"question\": \"1\", \"answer\": \"1\"}\n{\"question\":\n");
  RefuseJob(JsonlJob(), {"rows.jsonl:2: ", "JSON"}, 1);
}

TEST_F(BadJobTest, CommandLinesAndFoldersThatCannotBeUsed) {
  ExpectRefused({"missing.yaml"}, {"missing.yaml: "});
  WriteJob(MakeTinyJob());
  folder_.Write("file", "");
  ExpectRefused({"job.yaml", "--run-dir", "file/run"}, {"file"});
  ExpectRefused({"job.yaml", "--run-dir", "/proc/self/run"}, {"/proc/self"});
  ExpectRefused({"job.yaml", "--run-dir", "/dev/null/run"}, {"/dev/null"});
  ExpectRefused({"job.yaml", "--set", "staleness.max=-1"}, {"--set", "staleness.max", "-1"});
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"local"},
                                             {"local", "job.yaml", "--resume", "run"},
                                             {"local", "--resume", "run", "--run-dir", "other"},
                                             {"local", "job.yaml", "more.yaml"},
                                             {"local", "job.yaml", "--nonsense"},
                                             {"local", "job.yaml", "--metrics-port", "0"},
                                             {"local", "job.yaml", "--crash-at", "commit"},
                                             {"local", "job.yaml", "--crash-at", "commit:0"}}) {
    const ChildResult result = Freshet(args);
    EXPECT_EQ(result.exit_code, 2) << args.back() << result.err;
    EXPECT_NE(result.err, "") << args.back();
    EXPECT_FALSE(Exists("runs"));
  }
}

}  // namespace
}  // namespace freshet
