#include "local/evaluator.h"

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "dataset/template_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/char_tokenizer.h"
#include "services/reward/scorers/scorer_factory.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"
#include "tests/services/reward/scorers/callback_scorer.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kGuard = absl::Seconds(20);

// An evaluator over a worker with a scripted engine whose responses are 'k', 'l', 'm', ... (ids 10,
// 11, 12, ...).
class EvaluatorTest : public RolloutWorkerFixture {
 protected:
  EvaluatorTest() {
    job::v1::Eval& eval = *setup_.spec.mutable_eval();
    eval.set_name("heldout");
    eval.set_rows(3);
    setup_.spec.mutable_reward()->set_timeout_ms(1000);
    setup_.spec.mutable_reward()->set_max_attempts(2);
    setup_.model.tokenizer = *CreateCharTokenizer("abcdefghijklmnopqrstuvwxyz");
    setup_.eval_sampling.max_new_tokens = 16;
    SetRows({"k", "kl", "xx"});
    SetReward("exact_match", "{answer}");
    engine_.length = [](int64_t request, int32_t) { return request == -2 ? 2U : 1U; };
  }

  // Sets one held-out row "ab" per expected answer.
  void SetRows(const std::vector<std::string>& answers) {
    TemplateDatasetOptions options;
    options.row.prompt = "{q}";
    options.row.answer = "answer";
    for (const std::string& answer : answers) {
      options.rows.push_back({{"q", "ab"}, {"answer", answer}});
    }
    auto rows = TemplateDataset::Create(options);
    ASSERT_TRUE(rows.ok()) << rows.status();
    setup_.data.held_out = *std::move(rows);
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
      auto created = Evaluator::Create(setup_, worker(), clock_, [this] { finished_.Notify(); });
      EXPECT_TRUE(created.ok()) << created.status();
      evaluator_ = *std::move(created);
    }
    return *evaluator_;
  }
  static WeightSnapshot Weights(int64_t version) {
    const VersionForTest made = MakeVersion({0, version}, 1, 100, 64);
    return {made.manifest, made.bytes};
  }
  // Runs the worker until the evaluation is generated, then waits for its scores.
  void RunEvaluation() {
    ASSERT_TRUE(RunUntil([&] { return !worker().EvaluationBusy(); }).ok());
    ASSERT_TRUE(finished_.WaitFor(kGuard));
  }
  // Replaces the scorer by `function`, as a user's reward service.
  void UseService(CallbackScorer::Function function) {
    (*setup_.spec.mutable_reward()->mutable_components())["part"].set_type("grpc");
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
  Notification finished_;
  std::unique_ptr<Evaluator> evaluator_;
  bool idle_while_recording_ = false;
  absl::Status record_status_;
  absl::Status failure_;
  std::vector<EvalMetrics> results_;
};

TEST_F(EvaluatorTest, ScoresEveryRowAtThePinnedVersion) {
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U);
  const EvalMetrics& metrics = results_[0];
  EXPECT_EQ(metrics.eval_name, "heldout");
  EXPECT_EQ(metrics.policy_version, 7);
  EXPECT_EQ(metrics.rows, 3);
  EXPECT_DOUBLE_EQ(metrics.eval_accuracy, 2 * 2 / 3.0);  // "k" and "kl" are right; weight 2
  EXPECT_DOUBLE_EQ(metrics.reward_components.at("part"), 2 / 3.0);
  EXPECT_DOUBLE_EQ(metrics.completion_length_mean, 4 / 3.0);
  EXPECT_THAT(engine_.loaded[1], ElementsAre(PolicyVersion{0, 7}));
}

TEST_F(EvaluatorTest, APerfectScoreIsExact) {
  SetRows(std::vector<std::string>(49, "k"));  // 49 * (1.0 / 49) != 1
  setup_.spec.mutable_eval()->set_rows(100);
  SetReward("contains", "k");
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  EXPECT_EQ(results_.at(0).eval_accuracy, 2.0);
  EXPECT_EQ(results_.at(0).reward_components.at("part"), 1.0);
  EXPECT_EQ(results_.at(0).rows, 49) << "no more than there are";
}

TEST_F(EvaluatorTest, OneAtATimeAndTheOthersAreCounted) {
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  EXPECT_FALSE(evaluator().Start(Weights(8)));
  EXPECT_FALSE(evaluator().AwaitIdle(absl::ZeroDuration()));
  bool restarted = false;
  ASSERT_TRUE(RunUntil([&] {
                if (restarted) return true;
                if (worker().EvaluationBusy()) return false;
                EXPECT_TRUE(finished_.WaitFor(kGuard));
                EXPECT_FALSE(evaluator().Start(Weights(8))) << "its result is not taken yet";
                EXPECT_EQ(evaluator().skipped(), 2);
                EXPECT_TRUE(Take().ok());
                EXPECT_FALSE(idle_while_recording_);
                EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
                restarted = evaluator().Start(Weights(9));
                return true;
              }).ok());
  EXPECT_TRUE(restarted);
}

TEST_F(EvaluatorTest, NothingToTakeIsNoError) {
  EXPECT_TRUE(Take().ok());
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  EXPECT_TRUE(Take().ok());
  EXPECT_TRUE(results_.empty());
}

TEST_F(EvaluatorTest, AStoppedWorkerGivesAnError) {
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  ASSERT_TRUE(RunUntil([] { return true; }).ok());
  EXPECT_TRUE(finished_.HasBeenNotified());
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(failure_.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(evaluator().AwaitIdle(absl::ZeroDuration()));
}

TEST_F(EvaluatorTest, AScorerThatAlwaysFailsNamesARowAndIsNoZero) {
  SetReward("regex", "((?1)x|y)");
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  EXPECT_TRUE(Take().ok()) << "no error of the job";
  EXPECT_EQ(failure_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(failure_),
              HasSubstr("evaluation of version 7: none of 3 rows has a score; row 0: "));
  EXPECT_TRUE(results_.empty());
}

TEST_F(EvaluatorTest, ARowThatCannotBeScoredIsCountedAndLeftOut) {
  std::atomic<int> calls{0};
  UseService([&calls](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    ++calls;
    // The answer to row 1 is "kl".
    if (input.completion == "kl") return absl::InternalError("the sandbox is full");
    return ComponentScore{0.5};
  });
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].rows, 3);
  EXPECT_EQ(results_[0].eval_failed_rows, 1);
  EXPECT_EQ(results_[0].eval_accuracy, 0.5);
  EXPECT_EQ(results_[0].reward_components.at("part"), 0.5);
  EXPECT_EQ(results_[0].completion_length_mean, 1);
  EXPECT_EQ(calls, 2 + setup_.spec.reward().max_attempts());
}

TEST_F(EvaluatorTest, ARowThatCannotBeGeneratedIsCountedAndLeftOut) {
  engine_.refusal = [](const GenerationRequest& request) {
    return request.id == -1 ? absl::InternalError("the engine failed") : absl::OkStatus();
  };
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  const auto pass_pauses = [this] {
    clock_.Advance(absl::Seconds(1));
    return !worker().EvaluationBusy();
  };
  ASSERT_TRUE(RunUntil(pass_pauses).ok());
  ASSERT_TRUE(finished_.WaitFor(kGuard));
  ASSERT_TRUE(Take().ok());
  ASSERT_EQ(results_.size(), 1U) << failure_;
  EXPECT_EQ(results_[0].eval_failed_rows, 1);
  EXPECT_DOUBLE_EQ(results_[0].eval_accuracy, 2 / 2.0) << "of rows 1 and 2 the first is right";
}

TEST_F(EvaluatorTest, AnErrorOfTheRecorderComesBack) {
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  record_status_ = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(Take().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EvaluatorTest, CloseEndsWaits) {
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  evaluator().Close();
  EXPECT_FALSE(evaluator().AwaitIdle(absl::InfiniteDuration()));
}

TEST_F(EvaluatorTest, AsksAServiceForSeveralRowsAtTheSameTime) {
  Mutex mu;
  int running = 0;
  Notification three;
  UseService([&](const ScoreInput&) {
    {
      MutexLock lock(mu);
      if (++running == 3) three.Notify();
    }
    EXPECT_TRUE(three.WaitFor(kGuard)) << "nobody goes on before three are here";
    return ComponentScore{1};
  });
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  RunEvaluation();
  ASSERT_TRUE(Take().ok());
  EXPECT_EQ(results_.at(0).eval_accuracy, 1);
}

TEST_F(EvaluatorTest, ASlowServiceHoldsUpNobodyAndIsGivenUpAtTheEnd) {
  Notification asked, given_up;
  UseService([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    Notification cancelled;
    const std::stop_callback on_cancel(input.cancel, [&] { cancelled.Notify(); });
    asked.Notify();
    if (!cancelled.WaitFor(kGuard)) return ComponentScore{1};
    given_up.Notify();
    return absl::CancelledError("given up");
  });
  ASSERT_TRUE(evaluator().Start(Weights(7)));
  ASSERT_TRUE(RunUntil([&] { return !worker().EvaluationBusy(); }).ok());
  ASSERT_TRUE(asked.WaitFor(kGuard));
  EXPECT_TRUE(Take().ok());
  EXPECT_FALSE(given_up.HasBeenNotified()) << "to take nothing waits for nobody";
  evaluator_.reset();
  EXPECT_TRUE(given_up.HasBeenNotified());
  EXPECT_TRUE(results_.empty());
  EXPECT_FALSE(finished_.HasBeenNotified());
}

}  // namespace
}  // namespace freshet
