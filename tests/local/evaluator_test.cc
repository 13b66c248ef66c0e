#include "local/evaluator.h"

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "dataset/template_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// An evaluator over a worker with a scripted engine whose responses are 'k', 'l', 'm', ... (ids 10,
// 11, 12, ...), and a reward worker that scores when it is told to.
class EvaluatorTest : public RolloutWorkerFixture {
 protected:
  EvaluatorTest() {
    job::v1::Eval& eval = *setup_.spec.mutable_eval();
    eval.set_name("heldout");
    eval.set_rows(3);
    setup_.store.job = "job";
    setup_.model.tokenizer = *CreateCharTokenizer("abcdefghijklmnopqrstuvwxyz");
    setup_.eval_sampling.resize(1);
    setup_.eval_sampling[0].max_new_tokens = 16;
    SetRows({"k", "kl", "xx"});
    SetReward("exact_match", "{answer}");
    engine_.length = [](int64_t request, int32_t) { return request == -2 ? 2U : 1U; };
  }

  // Sets one held-out row "ab" per expected answer.
  void SetRows(const std::vector<std::string>& answers) {
    job::v1::Dataset dataset;
    dataset.set_prompt("{q}");
    dataset.set_answer("answer");
    for (const std::string& answer : answers) {
      auto& values = *dataset.add_rows()->mutable_values();
      values["q"] = "ab";
      values["answer"] = answer;
    }
    auto rows = MakeTemplateDataset(dataset);
    ASSERT_TRUE(rows.ok()) << rows.status();
    setup_.data.held_out.assign(1, *std::move(rows));
  }
  // Evaluates the sets "first", 3 rows, and "second", 4 samples of 2 rows.
  void AddSets() {
    for (const char* name : {"first", "second"}) {
      job::v1::EvalSet& set = *setup_.spec.mutable_eval()->add_sets();
      set.set_name(name);
    }
    job::v1::EvalSet& second = *setup_.spec.mutable_eval()->mutable_sets(1);
    second.set_rows(2);
    second.set_samples_per_prompt(4);
    second.add_pass_at(1);
    second.add_pass_at(4);
    setup_.eval_sampling.resize(2, setup_.eval_sampling[0]);
    setup_.data.held_out.resize(2, setup_.data.held_out[0]);
  }
  void SetReward(const std::string& type, const std::string& text) {
    job::v1::Reward reward;
    job::v1::RewardComponent& part = (*reward.mutable_components())["part"];
    part.set_type(type);
    part.set_weight(2.0);
    type == "regex" ? part.set_pattern(text) : part.set_text(text);
    auto scorer = MakeCompositeScorer(reward);
    ASSERT_TRUE(scorer.ok()) << scorer.status();
    setup_.scorer = *std::move(scorer);
  }
  Evaluator& evaluator() {
    if (evaluator_ == nullptr) {
      auto created = Evaluator::Create(setup_, store_->evaluations(), worker(), clock_);
      EXPECT_TRUE(created.ok()) << created.status();
      evaluator_ = *std::move(created);
    }
    return *evaluator_;
  }
  static WeightSnapshot Weights(int64_t version) {
    const VersionForTest made = MakeVersion({0, version}, 1, 100, 64);
    return {made.manifest, made.bytes};
  }
  // Starts evaluating `version`; returns whether it did.
  bool Start(int64_t version) {
    const auto started = evaluator().Start(Weights(version));
    EXPECT_TRUE(started.ok()) << started.status();
    return started.value_or(false);
  }
  // Scores the stored answers, with all retries.
  void Score() {
    const ResponseDecoder decode = [this](const std::vector<int32_t>& ids) {
      return setup_.model.tokenizer->Decode(ids, /*skip_special=*/true);
    };
    RewardWorker reward(store_->evaluations(), *setup_.scorer, decode, RewardWorkerOptions());
    for (int i = 0; i < store_->options().max_row_failures; ++i) reward.RunOnce();
  }
  // Runs the worker until the answers are stored, then scores them.
  void RunEvaluation() {
    ASSERT_TRUE(RunUntil([&] { return !worker().EvaluationBusy(); }).ok());
    Score();
  }
  // Runs the worker until the results of all sets are taken. `taken` is called after each.
  void RunSets(const std::function<void()>& taken = [] {}) {
    ASSERT_TRUE(RunUntil([&] {
                  if (worker().EvaluationBusy()) return false;
                  Score();
                  EXPECT_TRUE(Take().ok());
                  taken();
                  return evaluator().AwaitIdle(absl::ZeroDuration());
                }).ok());
  }
  // Replaces the scorer by `function`.
  void UseScorer(CallbackScorer::Function function) {
    setup_.scorer = std::make_unique<CompositeScorer>();
    setup_.scorer->Add("part", 1.0, std::make_unique<CallbackScorer>(std::move(function)));
  }
  // Takes the result, if any: appends it to results_, or stores the error in failure_.
  absl::Status Take() {
    return evaluator().TakeResult([this](absl::StatusOr<EvalMetrics> result) {
      idle_while_recording_ = evaluator().AwaitIdle(absl::ZeroDuration());
      failure_ = result.status();
      if (result.ok()) results_.push_back(*std::move(result));
      return record_status_;
    });
  }

  JobSetup setup_;
  std::unique_ptr<Evaluator> evaluator_;
  bool idle_while_recording_ = false;
  absl::Status record_status_;
  absl::Status failure_;
  std::vector<EvalMetrics> results_;
};

TEST_F(EvaluatorTest, EvaluatesEveryRowAtThePinnedVersion) {
  ASSERT_TRUE(Start(7));
  clock_.Advance(absl::Seconds(2));
  RunEvaluation();
  clock_.Advance(absl::Seconds(3));
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  const EvalMetrics& metrics = results_[0];
  EXPECT_EQ(metrics.eval_name, "heldout");
  EXPECT_EQ(metrics.policy_version, 7);
  EXPECT_EQ(metrics.lineage, 0);
  EXPECT_EQ(metrics.rows, 3);
  EXPECT_EQ(metrics.eval_failed_rows, 0);
  EXPECT_DOUBLE_EQ(metrics.eval_accuracy, 2 * 2 / 3.0);  // "k" and "kl" are right; weight 2
  EXPECT_DOUBLE_EQ(metrics.reward_components.at("part"), 2 / 3.0);
  EXPECT_DOUBLE_EQ(metrics.completion_length_mean, 4 / 3.0);
  EXPECT_EQ(metrics.eval_seconds, 5);
  EXPECT_THAT(engine_.loaded[1], ElementsAre(PolicyVersion{0, 7}));
}

TEST_F(EvaluatorTest, UsesNoMoreRowsThanThereAre) {
  setup_.spec.mutable_eval()->set_rows(100);
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].rows, 3);
}

TEST_F(EvaluatorTest, UsesTheFirstRows) {
  setup_.spec.mutable_eval()->set_rows(2);
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].rows, 2);
  EXPECT_EQ(results_[0].reward_components.at("part"), 1.0);
}

TEST_F(EvaluatorTest, SetsAreEvaluatedOneAfterTheOther) {
  AddSets();
  ASSERT_TRUE(Start(7));
  RunSets([&] {
    if (evaluator().AwaitIdle(absl::ZeroDuration())) return;
    EXPECT_EQ(results_.size(), 1U) << failure_;
    EXPECT_FALSE(Start(8)) << "the next set runs";
  });
  ASSERT_EQ(results_.size(), 2U) << failure_;
  EXPECT_EQ(results_[0].eval_name, "first");
  EXPECT_EQ(results_[0].rows, 3);
  EXPECT_EQ(results_[0].samples_per_prompt, 1);
  EXPECT_EQ(results_[1].eval_name, "second");
  EXPECT_EQ(results_[1].policy_version, 7);
  EXPECT_EQ(results_[1].rows, 2);
  EXPECT_EQ(results_[1].samples_per_prompt, 4);
  // Of the answers "k", "kl", "k", "k" to "k" three are right; all those to "kl" are "k".
  EXPECT_THAT(results_[1].eval_pass_at, ElementsAre(Pair(1, 0.375), Pair(4, 0.5)));
}

TEST_F(EvaluatorTest, ASetThatFailsDoesNotKeepTheOthersFromRunning) {
  AddSets();
  engine_.load_status[1] = absl::InvalidArgumentError("another model");
  ASSERT_TRUE(Start(7));
  RunSets([&] {
    if (!results_.empty()) return;
    EXPECT_EQ(Message(failure_), "evaluation first of version 7: another model");
    engine_.load_status[1] = absl::OkStatus();
  });
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].eval_name, "second");
}

TEST_F(EvaluatorTest, SetsThatAnEarlierProcessEvaluatedAreLeftOut) {
  AddSets();
  ASSERT_TRUE(*evaluator().Start(Weights(7), {"first"}));
  RunSets();
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].eval_name, "second");
  ASSERT_TRUE(*evaluator().Start(Weights(7), {"first", "second"}));
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration())) << "nothing is left";
}

TEST_F(EvaluatorTest, OneAtATime) {
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
  ASSERT_TRUE(Start(7));
  EXPECT_FALSE(Start(8));
  EXPECT_FALSE(evaluator().AwaitIdle(absl::ZeroDuration()));
  bool restarted = false;
  ASSERT_TRUE(RunUntil([&] {
                if (restarted) return true;
                if (worker().EvaluationBusy()) return false;
                Score();
                EXPECT_FALSE(Start(8)) << "its result is not taken yet";
                EXPECT_FALSE(evaluator().AwaitIdle(absl::ZeroDuration()));
                EXPECT_TRUE(Take().ok());
                EXPECT_FALSE(idle_while_recording_);
                EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
                restarted = Start(9);
                return true;
              }).ok());
  EXPECT_TRUE(restarted);
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].policy_version, 7);
}

TEST_F(EvaluatorTest, AVersionThatTheWorkerDoesNotTakeIsNotRunning) {
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(worker().Run(stopped.get_token()).ok());
  EXPECT_FALSE(Start(7));
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
  EXPECT_TRUE(Take().ok());
  EXPECT_TRUE(results_.empty());
}

TEST_F(EvaluatorTest, NothingToTakeIsNoError) {
  EXPECT_TRUE(Take().ok());
  ASSERT_TRUE(Start(7));
  EXPECT_TRUE(Take().ok());
  EXPECT_TRUE(results_.empty());
}

TEST_F(EvaluatorTest, AnswersWithoutScoresAreNotTaken) {
  ASSERT_TRUE(Start(7));
  ASSERT_TRUE(RunUntil([&] { return !worker().EvaluationBusy(); }).ok());
  EXPECT_TRUE(Take().ok()) << "taking nothing waits for nobody";
  EXPECT_TRUE(results_.empty());
  EXPECT_FALSE(evaluator().AwaitIdle(absl::ZeroDuration()));
  Score();
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(results_.size(), 1U) << failure_;
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(results_.size(), 1U) << "once";
}

TEST_F(EvaluatorTest, AStoppedWorkerGivesAnError) {
  ASSERT_TRUE(Start(7));
  ASSERT_TRUE(RunUntil([] { return true; }).ok());
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(failure_.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Message(failure_), "evaluation heldout of version 7: the rollout worker stops");
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
}

TEST_F(EvaluatorTest, AScorerThatAlwaysFailsNamesARowAndIsNoZero) {
  SetReward("regex", "((?1)x|y)");
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  EXPECT_TRUE(Take().ok()) << "no error of the job";
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(failure_),
              HasSubstr("evaluation heldout of version 7: none of 3 rows has a score; row 0: "));
  EXPECT_TRUE(results_.empty());
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
}

TEST_F(EvaluatorTest, ARowThatCannotBeScoredIsCountedAndLeftOut) {
  int calls = 0;
  UseScorer([&calls](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    ++calls;
    // The answer to row 1 is "kl".
    if (input.completion == "kl") return absl::InternalError("the sandbox is full");
    return ComponentScore{0.5};
  });
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].rows, 3);
  EXPECT_EQ(results_[0].eval_failed_rows, 1);
  EXPECT_EQ(results_[0].eval_accuracy, 0.5);
  EXPECT_EQ(results_[0].reward_components.at("part"), 0.5);
  EXPECT_EQ(results_[0].completion_length_mean, 1);
  EXPECT_EQ(calls, 2 + store_->options().max_row_failures);
}

TEST_F(EvaluatorTest, ARowThatCannotBeGeneratedIsCountedAndLeftOut) {
  engine_.refusal = [](const GenerationRequest& request) {
    return request.id == -1 ? absl::InternalError("the engine failed") : absl::OkStatus();
  };
  ASSERT_TRUE(Start(7));
  const auto pass_pauses = [this] {
    clock_.Advance(absl::Seconds(1));
    return !worker().EvaluationBusy();
  };
  ASSERT_TRUE(RunUntil(pass_pauses).ok());
  Score();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].eval_failed_rows, 1);
  EXPECT_DOUBLE_EQ(results_[0].eval_accuracy, 2 / 2.0) << "of rows 1 and 2 the first is right";
}

TEST_F(EvaluatorTest, AnErrorOfTheStoreComesBack) {
  store_->answers.status = absl::InternalError("no memory");
  EXPECT_EQ(evaluator().Start(Weights(7)).status(), absl::InternalError("no memory"));
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
  store_->answers.status = absl::OkStatus();
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  store_->answers.status = absl::InternalError("no memory");
  EXPECT_EQ(Take(), absl::InternalError("no memory"));
  EXPECT_TRUE(results_.empty());
}

TEST_F(EvaluatorTest, AnErrorOfTheRecorderComesBack) {
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  record_status_ = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(Take().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EvaluatorTest, CloseEndsWaitsAndResults) {
  ASSERT_TRUE(Start(7));
  RunEvaluation();
  evaluator().Close();
  EXPECT_FALSE(evaluator().AwaitIdle(absl::InfiniteDuration()));
  EXPECT_TRUE(Take().ok());
  EXPECT_TRUE(results_.empty());
}

}  // namespace
}  // namespace freshet
