// Runs with staleness.max 0 are reproducible bit for bit.
#include <csignal>
#include <filesystem>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

// Keys that measure time. All others must be functions of the job.
constexpr const char* kTimes[] = {
    "trainer_wait_seconds", "rollout_idle_seconds", "weight_swap_seconds",
    "train_seconds",        "optimizer_seconds",    "checkpoint_seconds",
    "step_seconds",         "eval_seconds",         "wall_seconds"};

struct Outcome {
  std::vector<Json> metrics;
  std::string samples;
  std::string weights;
  std::string optimizer;
  std::vector<Json> trained;
};

class DeterminismTest : public FreshetFixture {
 protected:
  Outcome Run(const TinyJob& job, const std::string& last) {
    std::filesystem::remove_all(Path("run"));
    Train(job);
    return Read(last);
  }
  Outcome Read(const std::string& last) {
    Outcome outcome;
    outcome.metrics = Rows("run/metrics.jsonl");
    for (Json& row : outcome.metrics) {
      for (const char* key : kTimes) row.erase(key);
    }
    outcome.samples = folder_.Read("run/samples.jsonl");
    outcome.weights = folder_.Read("run/checkpoints/" + last + "/model.safetensors");
    outcome.optimizer = folder_.Read("run/checkpoints/" + last + "/optimizer.safetensors");
    outcome.trained = Ledger("trained");
    for (Json& row : outcome.trained) row.erase("seq");  // durable rows lie in between
    return outcome;
  }
  static void ExpectSame(const Outcome& first, const Outcome& second) {
    ASSERT_EQ(first.metrics.size(), second.metrics.size());
    for (size_t i = 0; i < first.metrics.size(); ++i) {
      EXPECT_EQ(first.metrics[i], second.metrics[i]) << "row " << i;
    }
    EXPECT_EQ(first.samples, second.samples);
    EXPECT_EQ(first.trained, second.trained);
    EXPECT_FALSE(first.weights.empty());
    EXPECT_TRUE(first.weights == second.weights);
    EXPECT_TRUE(first.optimizer == second.optimizer);
  }
  static TinyJob SynchronousJob() {
    TinyJob job = MakeTinyJob();
    job["staleness"] = "{max: 0}";
    job["trainer"] = "{steps: 12}";
    job["eval"] =
        "{every_steps: 1, rows: 30, sets: [{name: greedy}, {name: sampled, rows: 10, "
        "samples_per_prompt: 2, pass_at: [2]}]}";
    return job;
  }
};

TEST_F(DeterminismTest, TwoRunsAreTheSame) {
  const Outcome first = Run(SynchronousJob(), "step-12");
  ExpectSame(first, Run(SynchronousJob(), "step-12"));
  for (const Json& row : first.metrics) {
    if (row.contains("step")) {
      EXPECT_EQ(row["staleness_max"], 0);
    }
  }
}

TEST_F(DeterminismTest, SoAreRunsThatFilterAndTakeSeveralMinibatches) {
  TinyJob job = SynchronousJob();
  job["filter"] = "{zero_variance: true}";
  job["trainer"] = "{steps: 6, minibatches_per_step: 2}";
  job["warmup"] = "{sft: {steps: 60, batch_size: 32, learning_rate: 5.0e-3}}";
  const Outcome first = Run(job, "step-6");
  ExpectSame(first, Run(job, "step-6"));
  ExpectVerified();
}

TEST_F(DeterminismTest, SoAreRunsInBf16) {
  TinyJob job = SynchronousJob();
  job["model"].insert(1, "dtype: bf16, ");
  job["trainer"] = "{steps: 4}";
  const Outcome first = Run(job, "step-4");
  ExpectSame(first, Run(job, "step-4"));
}

// The format of checkpoints must not change the run.
TEST_F(DeterminismTest, SoAreBf16RunsWithBf16CheckpointsThatAreResumed) {
  TinyJob job = SynchronousJob();
  job["model"].insert(1, "dtype: bf16, ");
  job["trainer"] = "{steps: 6}";
  job["checkpoint"] = "{every_steps: 2, dtype: bf16}";
  const Outcome whole = Run(job, "step-6");
  std::filesystem::remove_all(Path("run"));
  WriteJob(job);
  const ChildResult crashed =
      Freshet({"local", "job.yaml", "--run-dir", "run", "--crash-at", "mark_durable:3"});
  ASSERT_EQ(crashed.signal, SIGKILL) << crashed.err;
  Resume();
  const Outcome resumed = Read("step-6");
  EXPECT_FALSE(whole.weights.empty());
  EXPECT_TRUE(whole.weights == resumed.weights);
  EXPECT_TRUE(whole.optimizer == resumed.optimizer) << "it has the fp32 master weights";
  ExpectVerified();
}

TEST_F(DeterminismTest, AnotherSeedIsAnotherRun) {
  const Outcome first = Run(SynchronousJob(), "step-12");
  TinyJob job = SynchronousJob();
  job["seed"] = "2";
  const Outcome second = Run(job, "step-12");
  EXPECT_FALSE(first.weights == second.weights);
  EXPECT_NE(first.samples, second.samples);
}

}  // namespace
}  // namespace freshet
