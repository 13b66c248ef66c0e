// validate, explain, init, --version, and unknown commands.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/str_cat.h"
#include "tests/e2e/freshet_fixture.h"
#include "tests/model/test_directory.h"
#include "tests/testing/model_directory.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

// A loopback port that is reserved but not listening.
class DeafPort {
 public:
  DeafPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~DeafPort() { ::close(fd_); }
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

class JobCommandsTest : public FreshetFixture {};

TEST_F(JobCommandsTest, EveryProgramTellsTheSameVersion) {
  const ChildResult result = Freshet({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, MatchesRegex("freshet [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const std::string version = result.out.substr(std::string("freshet").size());
  for (const char* role : {"local", "controller", "rollout", "reward", "env", "trainer"}) {
    const std::string name = std::string("freshet-") + role;
    ChildProcess child({std::string(FRESHET_BIN_DIR) + "/" + name, "--version"});
    const ChildResult answer = child.Wait(absl::Seconds(60));
    EXPECT_EQ(answer.exit_code, 0) << name;
    EXPECT_EQ(answer.out, name + version);
  }
}

TEST_F(JobCommandsTest, HelpNamesEveryCommand) {
  const ChildResult result = Freshet({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command : {"local", "score", "generate", "tokenize", "validate", "explain",
                              "init", "ledger", "report"}) {
    EXPECT_THAT(result.out, HasSubstr(command));
  }
  EXPECT_EQ(Freshet({"local", "--help"}).exit_code, 0);
}

TEST_F(JobCommandsTest, WhatIsNoCommand) {
  const ChildResult result = Freshet({"trane"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("trane"), HasSubstr("--help")));
  EXPECT_EQ(Freshet({}).exit_code, 2);
  EXPECT_EQ(Freshet({"ledger"}).exit_code, 2);
  EXPECT_EQ(Freshet({"validate"}).exit_code, 2);
  EXPECT_EQ(Freshet({"--nonsense"}).exit_code, 2);
}

TEST_F(JobCommandsTest, ExplainGivesMeaningTypeDefaultAndRange) {
  const ChildResult result = Freshet({"explain", "reward.timeout_ms"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("milliseconds"), HasSubstr("integer"),
                                HasSubstr("default: 1000"), HasSubstr("1 to 600000")));
  EXPECT_THAT(Freshet({"explain"}).out, AllOf(HasSubstr("staleness"), HasSubstr("optimizer")));
}

TEST_F(JobCommandsTest, ExplainNamesTheNearestKey) {
  const ChildResult result = Freshet({"explain", "reward.timeout"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("timeout_ms"));
}

TEST_F(JobCommandsTest, InitWritesAJobThatRuns) {
  EXPECT_EQ(Freshet({"init", "new.yaml"}).exit_code, 0);
  EXPECT_EQ(Freshet({"init"}).out, folder_.Read("new.yaml"));
  EXPECT_EQ(Freshet({"validate", "new.yaml"}).exit_code, 0);
  const ChildResult run =
      Freshet({"local", "new.yaml", "--run-dir", "run", "--set", "trainer.steps=1", "--set",
               "prompts_per_step=4", "--set", "warmup.sft.steps=1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(JobCommandsTest, InitOverwritesNothing) {
  folder_.Write("mine.yaml", "precious");
  const ChildResult result = Freshet({"init", "mine.yaml"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("mine.yaml"));
  EXPECT_EQ(folder_.Read("mine.yaml"), "precious");
}

TEST_F(JobCommandsTest, ValidatePrintsTheResolvedJob) {
  WriteJob(MakeTinyJob());
  const ChildResult result = Freshet({"validate", "job.yaml", "--set", "trainer.steps=77"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("steps: 77"), HasSubstr("lease_ttl_ms: 30000"),
                                HasSubstr("loss expands to")));
  folder_.Write("resolved.yaml", result.out);
  EXPECT_EQ(Freshet({"validate", "resolved.yaml"}).out, result.out) << "a fixed point";
}

TEST_F(JobCommandsTest, StaleSamplesThatNothingCorrectsAreSaidAloud) {
  TinyJob job = MakeTinyJob();
  job["loss"] = "{preset: grpo}";
  WriteJob(job);
  EXPECT_THAT(Freshet({"validate", "job.yaml"}).out,
              AllOf(HasSubstr("correction: {kind: tis, cap: 2.0}"), Not(HasSubstr("# warning"))));
  job["loss"] = "{preset: grpo, correction: {kind: none}}";
  WriteJob(job);
  EXPECT_THAT(Freshet({"validate", "job.yaml"}).out,
              HasSubstr("# warning: samples up to 1 version old are trained without"));
  const ChildResult run = Freshet({"local", "job.yaml", "--run-dir", "run", "--set",
                                   "trainer.steps=1", "--set", "warmup.sft.steps=1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("warning     samples up to 1 version old"));
}

TEST_F(JobCommandsTest, ValidateFindsWhatARunWouldFind) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: -1}";
  WriteJob(job);
  const ChildResult result = Freshet({"validate", "job.yaml"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("staleness.max"));
  job = MakeTinyJob();
  job["model"] = "{path: nowhere}";
  job["tokenizer"] = "";
  WriteJob(job);
  EXPECT_EQ(Freshet({"validate", "job.yaml"}).exit_code, 3);
  EXPECT_EQ(Freshet({"validate", "missing.yaml"}).exit_code, 3);
}

const char* const kExamples = FRESHET_SOURCE_DIR "/examples";

TEST_F(JobCommandsTest, EveryExampleIsValid) {
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kExamples)) {
    if (entry.path().extension() != ".yaml") continue;
    ++found;
    // These need a model: see below.
    if (entry.path().filename() == "stories.yaml") continue;
    if (entry.path().filename() == "gsm8k.yaml") continue;
    if (entry.path().filename() == "environments.yaml") continue;  // no job
    std::vector<std::string> args = {"validate", entry.path().string()};
    const std::string name = entry.path().stem();
    if (name == "calculator" || name == "code") {  // their paths are relative to the repository
      args.insert(args.end(), {"--set", StrCat("dataset.path=", kExamples, "/", name, ".jsonl")});
    } else if (name == "delegation") {
      args.insert(args.end(),
                  {"--set", StrCat("dataset.path=", kExamples, "/team/delegation.jsonl")});
    } else if (name == "lookup") {
      args.insert(args.end(), {"--set", StrCat("tokenizer.path=", kExamples, "/lookup"), "--set",
                               StrCat("dataset.path=", kExamples, "/lookup/rows.jsonl")});
    } else if (name == "notes") {
      args.insert(args.end(), {"--set", StrCat("tokenizer.path=", kExamples, "/lookup"), "--set",
                               StrCat("dataset.path=", kExamples, "/notes/rows.jsonl")});
    } else if (name == "team") {
      args.insert(args.end(), {"--set", StrCat("policies.planner.dataset.path=", kExamples,
                                               "/team/questions.jsonl")});
    } else if (name == "budget") {
      args.insert(args.end(),
                  {"--set", StrCat("dataset.path=", kExamples, "/budget/rows.jsonl"), "--set",
                   StrCat("eval.sets.0.path=", kExamples, "/budget/high.jsonl"), "--set",
                   StrCat("eval.sets.1.path=", kExamples, "/budget/medium.jsonl"), "--set",
                   StrCat("eval.sets.2.path=", kExamples, "/budget/low.jsonl")});
    }
    const ChildResult result = Freshet(args);
    EXPECT_EQ(result.exit_code, 0) << entry.path() << "\n" << result.err;
  }
  EXPECT_GE(found, 7);
}

TEST_F(JobCommandsTest, TheGsm8kExampleIsValidWithAModelAndRows) {
  ModelDirectory().Write(Path("model"));
  folder_.Write("model/chat_template.jinja", "{{ messages | length }}=");
  const std::string row = R"({"question": "1 + 1?", "answer": "#### 2"})";
  folder_.Write("rows", row + "\n" + row + "\n");
  const ChildResult result = Freshet({"validate", std::string(kExamples) + "/gsm8k.yaml", "--set",
                                      "model.path=model", "--set", "dataset.path=rows", "--set",
                                      "eval.rows=1", "--set", "rollout.max_new_tokens=8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(JobCommandsTest, TheStoriesExampleIsValidWithItsModel) {
  const std::string job = std::string(kExamples) + "/stories.yaml";
  const ChildResult without = Freshet({"validate", job});
  EXPECT_EQ(without.exit_code, 3);
  EXPECT_THAT(without.err, HasSubstr("model"));
  const std::string model = ReferencePath("stories260K/hf");
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "no reference model at " << model;
  const ChildResult with = Freshet({"validate", job, "--set", "model.path=" + model});
  EXPECT_EQ(with.exit_code, 0) << with.err;
}

TEST_F(JobCommandsTest, LedgerVerifyFindsAViolation) {
  Train(MakeTinyJob());
  std::vector<std::string> lines = Lines(folder_.Read("run/ledger.jsonl"));
  for (std::string& line : lines) {
    if (line.find("\"trained\"") == std::string::npos) continue;
    line = "";  // removes a sample
    break;
  }
  std::string text;
  for (const std::string& line : lines) {
    if (!line.empty()) text += line + "\n";
  }
  folder_.Write("run/ledger.jsonl", text);
  const ChildResult result = Freshet({"ledger", "verify", "run"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("step 1"));
  EXPECT_EQ(Freshet({"ledger", "verify", "./nowhere"}).exit_code, 3);
  // A name that is not a folder is a job id.
  const DeafPort port;
  EXPECT_EQ(Freshet({"ledger", "verify", "nowhere", "--server", port.address()}).exit_code, 7);
  EXPECT_EQ(Freshet({"report", "nowhere"}).exit_code, 3);
}

}  // namespace
}  // namespace freshet
