#include "controller/jobs/driver/job_evaluations.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "datastore/memory/in_memory_evaluation_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/eval_sets.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"
#include "tests/testing/forwarding_evaluation_store.h"

namespace freshet {
namespace {

using cluster::v1::Evaluate;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr int64_t kRows = 3;
constexpr absl::Duration kDeadline = absl::Minutes(10);

job::v1::JobSpec EvaluatedSpec() {
  job::v1::JobSpec spec;
  spec.mutable_eval()->set_name("heldout");
  spec.mutable_eval()->set_every_steps(2);
  spec.mutable_trainer()->set_steps(4);
  return spec;
}

// The evaluations of a job with two rollouts. The test acts as rollout and as reward worker.
class JobEvaluationsTest : public testing::Test {
 protected:
  JobEvaluationsTest() {
    auto hub = WorkerHub::Create(records_, 1, clock_, WorkerHubOptions());
    EXPECT_TRUE(hub.ok()) << hub.status();
    hub_ = *std::move(hub);
    for (HubWorker* rollout : {&r0_, &r1_}) {
      const absl::Status joined = rollout->Register(*hub_);
      EXPECT_TRUE(joined.ok()) << joined;
    }
    Use({});
  }
  // Evaluates `sets`, or "heldout" if there are none, with kRows rows each.
  void Use(const std::vector<job::v1::EvalSet>& sets) {
    job::v1::JobSpec spec = EvaluatedSpec();
    *spec.mutable_eval()->mutable_sets() = {sets.begin(), sets.end()};
    std::vector<EvaluatedSet> evaluated;
    for (const job::v1::EvalSet& set : EvalSets(spec)) evaluated.push_back({set, kRows});
    evaluations_.emplace(*hub_, store_, kDeadline, "tiny", spec, std::move(evaluated));
  }
  // A turn while both rollouts generate with `version`.
  std::optional<JobEvaluations::Ended> Turn(int64_t committed = 0, int64_t done_upto = -1,
                                            int64_t version = 4) {
    return TurnOf({done_upto}, committed, version);
  }
  std::optional<JobEvaluations::Ended> TurnOf(const std::vector<int64_t>& done,
                                              int64_t committed = 0, int64_t version = 4) {
    std::vector<EvaluatorSlot> slots;
    for (const HubWorker* rollout : {&r0_, &r1_}) {
      slots.push_back(
          {rollout->name(), rollout->epoch(), "tiny/rollout/" + rollout->name(), {1, version}});
    }
    return evaluations_->Turn(committed, done, slots, clock_.Now());
  }
  size_t Directed() { return r0_.evaluations().size() + r1_.evaluations().size(); }
  // Takes the only directive so far to `rollout`.
  static Evaluate Take(HubWorker& rollout) {
    EXPECT_THAT(rollout.evaluations(), SizeIs(1));
    return rollout.evaluations().empty() ? Evaluate() : rollout.evaluations().back();
  }
  // Answers row `first` + i with i + 1 tokens. `failures`: each i without an answer.
  absl::Status Answer(const std::string& id, const std::vector<int64_t>& failures = {},
                      int64_t first = 0) {
    std::vector<EvaluationAnswer> answers;
    for (int64_t i = 0; i < kRows; ++i) {
      EvaluationAnswer& answer = answers.emplace_back();
      answer.row = first + i;
      if (std::count(failures.begin(), failures.end(), i) > 0) {
        answer.error = "the environment raised";
        continue;
      }
      Response response;
      response.response_ids.assign(static_cast<size_t>(i) + 1, 7);
      answer.prompt = std::make_shared<const Prompt>();
      answer.response = std::make_shared<const Response>(std::move(response));
    }
    return store_.PutAnswers(id, {1, 4}, answers);
  }
  // Rewards all answers with `reward`, except that of row `failing`.
  void ScoreAnswers(double reward, int64_t failing = -1) {
    for (int tries = 0; tries < 3; ++tries) {
      const auto leased = store_.LeaseRows(Task::kScore, "w0", 100);
      for (const RowLease& row : *leased) {
        const bool fails = row.sample.key.ordinal == failing;
        const FieldValues score{std::make_shared<const Score>(Score{reward, {{"exact", reward}}})};
        EXPECT_EQ(fails ? store_.FailRow(Task::kScore, row.token, "the sandbox is full")
                        : store_.PutFields(Task::kScore, row.token, score),
                  absl::OkStatus());
      }
    }
  }

  FakeClock clock_;
  InMemoryJobRecords records_;
  std::unique_ptr<WorkerHub> hub_;
  HubWorker r0_{cluster::v1::ROLE_ROLLOUT, "r0"};
  HubWorker r1_{cluster::v1::ROLE_ROLLOUT, "r1"};
  InMemoryEvaluationStore memory_{absl::Hours(10), 3, clock_};
  ForwardingEvaluationStore store_{memory_};
  std::optional<JobEvaluations> evaluations_;
};

TEST_F(JobEvaluationsTest, DirectsARolloutAndReturnsTheRowOnceAllAreScored) {
  EXPECT_FALSE(Turn(-1).has_value());
  EXPECT_EQ(Directed(), 0U) << "nothing is due";
  EXPECT_FALSE(Turn().has_value());
  const Evaluate evaluate = Take(r0_);
  EXPECT_EQ(Directed(), 1U);
  EXPECT_EQ(evaluate.assignment_id(), "tiny/rollout/r0");
  EXPECT_EQ(evaluate.policy().lineage(), 1);
  EXPECT_EQ(evaluate.policy().version(), 0);
  EXPECT_EQ(evaluate.rows(), kRows);
  EXPECT_EQ(store_.Read(evaluate.evaluation_id())->answered, 0) << "it has begun";
  clock_.Advance(absl::Seconds(3));
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Answer(evaluate.evaluation_id()), absl::OkStatus());
  EXPECT_FALSE(Turn().has_value());
  EXPECT_FALSE(evaluations_->idle());
  ScoreAnswers(1);
  clock_.Advance(absl::Seconds(4));
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->version, 0);
  EXPECT_EQ(ended->error, "");
  ASSERT_TRUE(ended->metrics.has_value());
  EXPECT_EQ(ended->metrics->eval_name, "heldout");
  EXPECT_EQ(ended->metrics->lineage, 1);
  EXPECT_EQ(ended->metrics->policy_version, 4) << "that of the answers";
  EXPECT_EQ(ended->metrics->rows, kRows);
  EXPECT_EQ(ended->metrics->eval_accuracy, 1.0);
  EXPECT_EQ(ended->metrics->completion_length_mean, 2);  // (1 + 2 + 3) / 3
  EXPECT_EQ(ended->metrics->eval_seconds, 7);
  EXPECT_TRUE(Turn()->metrics.has_value()) << "until it is recorded";
  evaluations_->Cancel();
  EXPECT_TRUE(evaluations_->idle());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_.Read(evaluate.evaluation_id()).status()))
      << "the store keeps it no longer";
  EXPECT_FALSE(Turn(1, 0).has_value());
  EXPECT_EQ(Directed(), 1U) << "no other version is due";
}

TEST_F(JobEvaluationsTest, EverySetIsEvaluatedAlsoAfterAnotherFailed) {
  std::vector<job::v1::EvalSet> sets(2);
  sets[0].set_name("greedy");
  sets[1].set_name("sampled");
  sets[1].set_samples_per_prompt(2);
  sets[1].add_pass_at(2);
  Use(sets);
  EXPECT_FALSE(TurnOf({-1, -1}).has_value());
  const Evaluate greedy = Take(r0_);
  EXPECT_EQ(greedy.eval_set(), "greedy");
  ASSERT_EQ(Answer(greedy.evaluation_id(), {0, 1, 2}), absl::OkStatus());
  const auto failed = TurnOf({-1, -1});
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->set, "greedy");
  EXPECT_THAT(failed->error, StartsWith("evaluation greedy of version 0 failed: "));
  evaluations_->Cancel();

  EXPECT_FALSE(TurnOf({0, -1}).has_value());
  ASSERT_EQ(Directed(), 2U);
  const Evaluate sampled = r0_.evaluations().size() == 2 ? r0_.evaluations()[1] : Take(r1_);
  EXPECT_EQ(sampled.eval_set(), "sampled");
  EXPECT_EQ(sampled.rows(), kRows);
  ASSERT_EQ(Answer(sampled.evaluation_id()), absl::OkStatus());
  ScoreAnswers(1);
  EXPECT_FALSE(TurnOf({0, -1}).has_value()) << "half of the samples have no answer";
  ASSERT_EQ(Answer(sampled.evaluation_id(), {}, kRows), absl::OkStatus());
  ScoreAnswers(0);
  const auto ended = TurnOf({0, -1});
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->set, "sampled");
  ASSERT_TRUE(ended->metrics.has_value()) << ended->error;
  EXPECT_EQ(ended->metrics->eval_name, "sampled");
  EXPECT_EQ(ended->metrics->rows, kRows);
  EXPECT_EQ(ended->metrics->eval_accuracy, 0.5);
  EXPECT_DOUBLE_EQ(ended->metrics->eval_pass_at.at(2), 2.0 / 3) << "samples 1 1, 1 0 and 0 0";
  evaluations_->Cancel();
  EXPECT_FALSE(TurnOf({0, 0}).has_value());
  EXPECT_EQ(Directed(), 2U) << "nothing is left";
}

TEST_F(JobEvaluationsTest, OneThatARolloutAbandonsIsTriedOnAnother) {
  EXPECT_FALSE(Turn().has_value());
  const std::string first = Take(r0_).evaluation_id();
  clock_.Advance(absl::Seconds(5));
  ASSERT_EQ(store_.Abandon(first, "no weights"), absl::OkStatus());
  EXPECT_FALSE(Turn().has_value());
  const std::string second = Take(r1_).evaluation_id();
  EXPECT_NE(second, first);
  EXPECT_TRUE(absl::IsFailedPrecondition(Answer(first))) << "answers of the first try are refused";
  ASSERT_EQ(Answer(second), absl::OkStatus());
  ScoreAnswers(0.5);
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  ASSERT_TRUE(ended->metrics.has_value()) << ended->error;
  EXPECT_EQ(ended->metrics->eval_accuracy, 0.5);
  EXPECT_EQ(ended->metrics->eval_seconds, 5) << "since the first try";
  EXPECT_EQ(Directed(), 2U);
}

TEST_F(JobEvaluationsTest, OneThatEveryRolloutAbandonsIsGivenUp) {
  std::optional<JobEvaluations::Ended> ended;
  std::set<std::string> ids;
  for (int turns = 0; turns < 20 && !ended.has_value(); ++turns) {
    clock_.Advance(absl::Seconds(1));
    ended = Turn();
    if (ended.has_value()) break;
    for (HubWorker* rollout : {&r0_, &r1_}) {
      for (const Evaluate& evaluate : rollout->evaluations()) {
        if (!ids.insert(evaluate.evaluation_id()).second) continue;
        EXPECT_EQ(store_.Abandon(evaluate.evaluation_id(), "no weights"), absl::OkStatus());
      }
    }
  }
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->metrics.has_value());
  EXPECT_EQ(ended->version, 0);
  EXPECT_THAT(ended->error, HasSubstr("version 0 was given up after 5 tries: no weights"));
  EXPECT_THAT(ids, SizeIs(5));
  EXPECT_TRUE(evaluations_->idle());
}

TEST_F(JobEvaluationsTest, ARolloutThatIsNotReachedIsNotWaitedFor) {
  const EvaluatorSlot former{"r0", r0_.epoch() + 7, "tiny/rollout/r0", {1, 0}};
  const EvaluatorSlot other{"r1", r1_.epoch(), "tiny/rollout/r1", {1, 2}};
  EXPECT_FALSE(evaluations_->Turn(0, {-1}, {former, other}, clock_.Now()).has_value());
  EXPECT_EQ(Directed(), 0U);
  EXPECT_FALSE(evaluations_->Turn(0, {-1}, {former, other}, clock_.Now()).has_value());
  EXPECT_EQ(Take(r1_).assignment_id(), "tiny/rollout/r1");
}

TEST_F(JobEvaluationsTest, AnsweredRowsSurviveTheirRollout) {
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Answer(Take(r0_).evaluation_id()), absl::OkStatus());
  EXPECT_FALSE(Turn().has_value());
  EXPECT_FALSE(evaluations_->Turn(0, {-1}, {}, clock_.Now()).has_value());
  ScoreAnswers(1);
  const auto ended = evaluations_->Turn(0, {-1}, {}, clock_.Now());
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->metrics.has_value()) << ended->error;
  EXPECT_EQ(Directed(), 1U);
}

TEST_F(JobEvaluationsTest, ScoringThatNeverEndsIsGivenUp) {
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Answer(Take(r0_).evaluation_id()), absl::OkStatus());
  EXPECT_FALSE(Turn().has_value());
  clock_.Advance(kDeadline - absl::Seconds(1));
  EXPECT_FALSE(Turn().has_value());
  clock_.Advance(absl::Seconds(1));
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->metrics.has_value());
  EXPECT_EQ(ended->version, 0);
  EXPECT_THAT(ended->error, HasSubstr("scoring its rows took more than 10m"));
  EXPECT_TRUE(evaluations_->idle());
  EXPECT_EQ(Directed(), 1U) << "the answers are not generated again";
}

TEST_F(JobEvaluationsTest, FailedRowsAreCountedAndLeftOut) {
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Answer(Take(r0_).evaluation_id(), {0}), absl::OkStatus());
  ScoreAnswers(1, /*failing=*/1);
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  ASSERT_TRUE(ended->metrics.has_value()) << ended->error;
  EXPECT_EQ(ended->metrics->rows, kRows);
  EXPECT_EQ(ended->metrics->eval_failed_rows, 2);
  EXPECT_EQ(ended->metrics->eval_accuracy, 1.0);
  EXPECT_EQ(ended->metrics->completion_length_mean, 3);
}

TEST_F(JobEvaluationsTest, WithoutAnyScoreItFails) {
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Answer(Take(r0_).evaluation_id(), {0, 1, 2}), absl::OkStatus());
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->metrics.has_value());
  EXPECT_EQ(ended->error,
            "evaluation heldout of version 0 failed: none of 3 rows has a score; row 0: the "
            "environment raised");
  EXPECT_EQ(Directed(), 1U);
}

TEST_F(JobEvaluationsTest, AStoreThatDoesNotAnswerAtTheStartCostsNoTry) {
  store_.status = absl::UnavailableError("redis is away");
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(absl::Minutes(1));
    EXPECT_FALSE(Turn(4).has_value());
  }
  EXPECT_EQ(Directed(), 0U) << "no rollout generates what could not be stored";
  EXPECT_EQ(evaluations_->skipped(), 2) << "versions 0 and 2, each once";
  store_.status = absl::OkStatus();
  EXPECT_FALSE(Turn(4).has_value());
  EXPECT_THAT(Take(r0_).evaluation_id(), StartsWith("tiny/eval/heldout/4/1/"));
}

TEST_F(JobEvaluationsTest, AStoreThatDoesNotAnswerMeanwhileCostsNoTry) {
  EXPECT_FALSE(Turn().has_value());
  const std::string id = Take(r0_).evaluation_id();
  store_.status = absl::UnavailableError("redis is away");
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Turn().has_value());
  EXPECT_FALSE(evaluations_->idle());
  store_.status = absl::OkStatus();
  ASSERT_EQ(Answer(id), absl::OkStatus()) << "still current";
  store_.status = absl::DeadlineExceededError("redis is slow");
  EXPECT_FALSE(Turn().has_value());
  store_.status = absl::OkStatus();
  ScoreAnswers(1);
  const auto ended = Turn();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->metrics.has_value()) << ended->error;
  EXPECT_EQ(Directed(), 1U);
}

TEST_F(JobEvaluationsTest, AnOutageThatOutlastsTheDeadlineCostsNoTry) {
  EXPECT_FALSE(Turn().has_value());
  const std::string first = Take(r0_).evaluation_id();
  store_.status = absl::UnavailableError("redis is away");
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(kDeadline);
    EXPECT_FALSE(Turn().has_value());
  }
  EXPECT_EQ(Directed(), 1U);
  store_.status = absl::OkStatus();
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(Directed(), 2U);
  for (HubWorker* rollout : {&r0_, &r1_}) {
    for (const Evaluate& evaluate : rollout->evaluations()) {
      if (evaluate.evaluation_id() == first) continue;
      EXPECT_THAT(evaluate.evaluation_id(), StartsWith("tiny/eval/heldout/0/1/"));
      EXPECT_EQ(Answer(evaluate.evaluation_id()), absl::OkStatus());
    }
  }
}

TEST_F(JobEvaluationsTest, OneThatTheStoreNoLongerHasIsTriedAgain) {
  EXPECT_FALSE(Turn().has_value());
  ASSERT_EQ(store_.End(Take(r0_).evaluation_id()), absl::OkStatus());
  EXPECT_FALSE(Turn().has_value());
  EXPECT_THAT(Take(r1_).evaluation_id(), StartsWith("tiny/eval/heldout/0/2/"));
}

}  // namespace
}  // namespace freshet
