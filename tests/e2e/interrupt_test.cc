// Ctrl-C, and several processes that use the same run folder.
#include <csignal>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Minutes(3);

// Runs longer than any test; must be ended by a signal.
TinyJob LongJob() {
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 100000}";
  job["checkpoint"] = "{every_steps: 1000}";
  job["eval"] = "";
  return job;
}

class InterruptTest : public FreshetFixture {
 protected:
  std::unique_ptr<ChildProcess> StartRun(const TinyJob& job, const std::string& until,
                                         std::vector<std::string> flags = {}) {
    WriteJob(job);
    flags.insert(flags.begin(), {"local", "job.yaml", "--run-dir", "run"});
    auto process = Start(std::move(flags));
    EXPECT_TRUE(process->AwaitOutput(until, kDeadline));
    return process;
  }
};

TEST_F(InterruptTest, CtrlCDrainsSavesAndSaysHowToGoOn) {
  const auto process = StartRun(LongJob(), "step 5/");
  process->Signal(SIGINT);
  const ChildResult result = process->Wait(kDeadline);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("interrupted"), HasSubstr("freshet local --resume run")));
  const auto steps = static_cast<int64_t>(SurvivingSteps().size());
  EXPECT_GE(steps, 5);
  ExpectComplete(steps);  // including a checkpoint of the last step
  EXPECT_TRUE(Exists("run/report.html"));

  const int64_t last = steps + 3;
  const ChildResult resumed =
      Freshet({"local", "--resume", "run", "--set", "trainer.steps=" + std::to_string(last)});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ExpectComplete(last);
  const std::vector<Json> rows = Ledger("resumed");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["fork_version"], steps) << "nothing is lost";
  EXPECT_THAT(folder_.Read("run/job.yaml"), HasSubstr("\n  steps: " + std::to_string(last) + "\n"))
      << "the folder says what was run";
}

TEST_F(InterruptTest, WhatAResumeChangesHoldsForTheNextOne) {
  Train(MakeTinyJob());
  const ChildResult resumed = Freshet({"local", "--resume", "run", "--set", "trainer.steps=8"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ExpectComplete(8);
  const ChildResult again = Freshet({"local", "--resume", "run"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("all 8 steps"));
  // A refused change leaves job.yaml unchanged.
  const std::string job = folder_.Read("run/job.yaml");
  EXPECT_EQ(Freshet({"local", "--resume", "run", "--set", "group_size=8"}).exit_code, 3);
  EXPECT_EQ(folder_.Read("run/job.yaml"), job);
}

TEST_F(InterruptTest, TermDoesTheSame) {
  const auto process = StartRun(LongJob(), "step 2/");
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(kDeadline).exit_code, 0);
  ExpectComplete(static_cast<int64_t>(SurvivingSteps().size()));
}

TEST_F(InterruptTest, CtrlCDuringTheWarmUp) {
  TinyJob job = LongJob();
  job["warmup"] = "{sft: {steps: 5000, batch_size: 32, learning_rate: 1.0e-4}}";
  const auto process = StartRun(job, "warm-up sft");
  process->Signal(SIGINT);
  const ChildResult result = process->Wait(kDeadline);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("--resume run"));
  const ChildResult resumed = Freshet(
      {"local", "--resume", "run", "--set", "warmup.sft.steps=20", "--set", "trainer.steps=3"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ExpectComplete(3);
}

TEST_F(InterruptTest, ASecondCtrlCStopsAtOnce) {
  // A step takes minutes, so the drain cannot finish.
  TinyJob job = LongJob();
  job["warmup"] = "";
  job["model"] =
      "{init: random, config: {model_type: llama, hidden_size: 512, num_hidden_layers: 8, "
      "num_attention_heads: 8, intermediate_size: 2048, max_position_embeddings: 512}}";
  job["rollout"] = "{max_new_tokens: 500}";
  job["prompts_per_step"] = "64";
  job["group_size"] = "8";
  job["staleness"] = "{max: 0}";
  job["eval"] = "{rows: 200}";
  const auto process = StartRun(job, "run  ");
  process->Signal(SIGINT);
  process->Signal(SIGTERM);  // two pending signals with the same number would be merged
  const ChildResult result = process->Wait(kDeadline);
  EXPECT_EQ(result.exit_code, 130) << result.out << result.err;
}

TEST_F(InterruptTest, AFinishedRunIsNotResumed) {
  Train(MakeTinyJob());
  const std::string ledger = folder_.Read("run/ledger.jsonl");
  const ChildResult result = Freshet({"local", "--resume", "run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("finished already"));
  EXPECT_EQ(folder_.Read("run/ledger.jsonl"), ledger) << "untouched";
}

TEST_F(InterruptTest, AnExistingRunIsNotOverwritten) {
  Train(MakeTinyJob());
  const std::string metrics = folder_.Read("run/metrics.jsonl");
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("run: "), HasSubstr("--resume run")));
  EXPECT_EQ(folder_.Read("run/metrics.jsonl"), metrics);
}

TEST_F(InterruptTest, AFolderThatIsNoRunIsLeftAlone) {
  folder_.Write("run/notes.txt", "mine");
  WriteJob(MakeTinyJob());
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("run: "), HasSubstr("--run-dir")));
  EXPECT_EQ(folder_.Read("run/notes.txt"), "mine");
}

TEST_F(InterruptTest, OneProcessAtATime) {
  const auto process = StartRun(LongJob(), "step 1/");
  const ChildResult second = Freshet({"local", "--resume", "run"});
  EXPECT_EQ(second.exit_code, 3);
  EXPECT_THAT(second.err, HasSubstr("another process works in this run"));
  process->Signal(SIGINT);
  EXPECT_EQ(process->Wait(kDeadline).exit_code, 0);
  ExpectVerified();
}

TEST_F(InterruptTest, ResumeNeedsARun) {
  const ChildResult result = Freshet({"local", "--resume", "nowhere"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
  EXPECT_FALSE(Exists("nowhere"));
}

TEST_F(InterruptTest, AFolderOfAnotherJobIsRefused) {
  Train(MakeTinyJob());
  const std::string ledger = folder_.Read("run/ledger.jsonl");
  TinyJob other = MakeTinyJob();
  other["name"] = "other";
  other["trainer"] = "{steps: 20}";
  folder_.Write("run/job.yaml", ToYaml(other));
  const ChildResult result = Freshet({"local", "--resume", "run"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("run/ledger.jsonl"), HasSubstr("\"tiny\""), HasSubstr("\"other\"")));
  EXPECT_EQ(folder_.Read("run/ledger.jsonl"), ledger);
}

TEST_F(InterruptTest, WhatTheLedgerPromisesCannotChangeAtAResume) {
  Train(MakeTinyJob());
  for (const char* change :
       {"staleness.max=2", "staleness.policy=drop", "group_size=8", "prompts_per_step=4"}) {
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    const ChildResult result =
        Freshet({"local", "--resume", "run", "--set", change, "--set", "trainer.steps=9"});
    EXPECT_EQ(result.exit_code, 3) << change;
    EXPECT_THAT(result.err, AllOf(HasSubstr("run/ledger.jsonl"), HasSubstr(key)));
  }
}

}  // namespace
}  // namespace freshet
