#include "services/reward/worker/reward_worker.h"

#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "datastore/memory/in_memory_evaluation_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/scorer_case.h"
#include "tests/services/reward/worker/reward_worker_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/log_lines.h"

namespace freshet {
namespace {

TEST_F(RewardWorkerTest, ScoresLeasedRows) {
  scorer_.Add("exact", 2.0, MustMakeScorer(OptionsOfType("exact_match")));
  AddRows(2);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(store_.score(0)->reward, 2.0);
  EXPECT_EQ(store_.score(0)->components.at("exact"), 1.0);
  EXPECT_EQ(store_.score(1)->reward, 0.0);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().ok, 2);
}

TEST_F(RewardWorkerTest, ShowsTheScorerTheRewardOfTheEpisode) {
  scorer_.Add("own", 1.0, MustMakeScorer(OptionsOfType("environment")));
  Response episode = ResponseOf("a");
  episode.env_reward = 0.25;
  store_.AddRow({0, 0, 0}, {}, episode);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(store_.score(0)->reward, 0.25);
}

TEST_F(RewardWorkerTest, APolicyThatWasNotAskedHasSaidNothing) {
  std::string completion = "unset";
  int32_t tokens = -1;
  Use([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    completion = input.completion;
    tokens = input.completion_tokens;
    return ComponentScore{0};
  });
  Response response = ResponseOf("a");
  response.finish = FinishReason::kNotAsked;
  store_.AddRow({0, 0, 0}, {}, response);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(completion, "");
  EXPECT_EQ(tokens, 0);
}

TEST_F(RewardWorkerTest, ScoresTheRowsOfAnEvaluation) {
  scorer_.Add("exact", 2.0, MustMakeScorer(OptionsOfType("exact_match")));
  scorer_.Add("own", 1.0, MustMakeScorer(OptionsOfType("environment")));
  Use([](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    if (input.completion == "infra") return absl::InternalError("the sandbox is full");
    return ComponentScore{0};
  });
  const FakeClock clock;
  InMemoryEvaluationStore evaluations(absl::Seconds(30), 3, clock);
  ASSERT_EQ(evaluations.Begin("e", 4), absl::OkStatus());
  Prompt prompt;
  prompt.attributes["answer"] = "a";
  std::vector<EvaluationAnswer> answers;
  for (const char* text : {"a", "b", "infra"}) {
    Response response = ResponseOf(text);
    response.env_reward = 0.25;
    answers.push_back({std::ssize(answers), std::make_shared<const Prompt>(prompt),
                       std::make_shared<const Response>(std::move(response)), ""});
  }
  answers.push_back({3, nullptr, nullptr, "no answer: too long"});
  ASSERT_EQ(evaluations.PutAnswers("e", {0, 7}, answers), absl::OkStatus());
  RewardWorker worker(evaluations, scorer_, Decode, RewardWorkerOptions());
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(evaluations.Read("e")->ended, 3) << "the failed row is offered again";
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 0);
  const std::vector<EvaluationRow> rows = evaluations.Read("e")->rows;
  ASSERT_EQ(rows.size(), 4U);
  ASSERT_NE(rows[0].score, nullptr);
  EXPECT_EQ(rows[0].score->reward, 2.25);
  EXPECT_EQ(rows[0].score->components.at("exact"), 1.0);
  ASSERT_NE(rows[1].score, nullptr);
  EXPECT_EQ(rows[1].score->reward, 0.25);
  EXPECT_EQ(rows[2].score, nullptr) << "a failure is never a reward";
  EXPECT_THAT(rows[2].error, testing::HasSubstr("the sandbox is full"));
  EXPECT_EQ(rows[3].error, "no answer: too long") << "nobody scores it";
  EXPECT_EQ(worker.counters().ok, 2);
  EXPECT_EQ(worker.counters().infra_errors, 3);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().infra_errors, 3) << "it has ended";
}

TEST_F(RewardWorkerTest, LogsTheScoresOfSamplesWhoseLivesAreLogged) {
  const LogLines log;
  Use([](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    if (input.completion == "b") return absl::InternalError("no GPU");
    return ComponentScore{0.5};
  });
  AddRows(2);
  RewardWorkerOptions options;
  EXPECT_EQ(RewardWorker(store_, scorer_, Decode, options).RunOnce(), 1);
  EXPECT_THAT(log.With("event=sample_scored"), testing::IsEmpty());
  // Failures are logged regardless of trace_ratio.
  const std::string failed = TraceWords(SampleUid("j", {1, 0, 0}));
  EXPECT_THAT(
      log.With("event=score_failed"),
      testing::Each(testing::AllOf(testing::HasSubstr(failed), testing::HasSubstr("no GPU"))));
  options.trace_ratio = 1;
  AddRows(1);
  EXPECT_EQ(RewardWorker(store_, scorer_, Decode, options).RunOnce(), 1);
  EXPECT_THAT(log.With("event=sample_scored"),
              testing::ElementsAre("event=sample_scored " + TraceWords(SampleUid("j", {0, 0, 0})) +
                                   " reward=0.5"));
}

TEST_F(RewardWorkerTest, LeasesAtMostABatch) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(5);
  RewardWorker worker = MakeWorker(/*batch_rows=*/3);
  EXPECT_EQ(worker.RunOnce(), 3);
  EXPECT_EQ(worker.RunOnce(), 2);
}

TEST_F(RewardWorkerTest, PutsTheScoresOfABatchTogether) {
  RewardWorkerOptions options;
  options.put_period = absl::Hours(1);  // no row counts as slow
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(5);
  RewardWorker worker(store_, scorer_, Decode, options);
  EXPECT_EQ(worker.RunOnce(), 5);
  EXPECT_EQ(store_.put_rows_calls(), 1);
}

TEST_F(RewardWorkerTest, AScoreDoesNotWaitForSlowOnes) {
  RewardWorkerOptions options;
  options.put_period = absl::ZeroDuration();  // every row counts as slow
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(3);
  RewardWorker worker(store_, scorer_, Decode, options);
  EXPECT_EQ(worker.RunOnce(), 3);
  EXPECT_EQ(store_.put_rows_calls(), 3);
}

TEST_F(RewardWorkerTest, ShowsTheScorerTheSample) {
  std::string completion, answer;
  int32_t tokens = 0;
  bool finished = true;
  absl::Duration timeout;
  Use([&](const ScoreInput& input) {
    completion = std::string(input.completion);
    answer = input.attributes.at("answer");
    tokens = input.completion_tokens;
    finished = input.finished;
    timeout = input.timeout;
    return ComponentScore{1};
  });
  store_.AddRow({7, 0, 1}, {{"answer", "42"}}, ResponseOf("cut", FinishReason::kLength));
  MakeWorker().RunOnce();
  EXPECT_EQ(completion, "cut");
  EXPECT_EQ(answer, "42");
  EXPECT_EQ(tokens, 3);
  EXPECT_FALSE(finished);
  EXPECT_GT(timeout, absl::ZeroDuration());
  EXPECT_LE(timeout, absl::Seconds(1));
}

TEST_F(RewardWorkerTest, RetriesAFailedRowAndNeverRewardsIt) {
  int calls = 0;
  Use([&calls](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    if (++calls == 1) return absl::InternalError("no sandbox");
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.score(0), nullptr);
  EXPECT_THAT(store_.failures(0), testing::ElementsAre("infra_error: component c: no sandbox"));
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(store_.score(0)->reward, 1);
  EXPECT_EQ(worker.counters().infra_errors, 1);
  EXPECT_EQ(worker.counters().ok, 1);
}

TEST_F(RewardWorkerTest, CountsOutcomesApart) {
  Use([](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    if (input.completion == "w") return ComponentScore{0, ScoreOutcome::kWrongFormat};
    if (input.completion == "t") return absl::DeadlineExceededError("slow");
    if (input.completion == "i") return absl::InternalError("bug");
    return ComponentScore{1};
  });
  int ordinal = 0;
  for (const char* text : {"w", "t", "i", "o", "o"}) {
    store_.AddRow({ordinal++, 0, 0}, {}, ResponseOf(text));
  }
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 3);
  const RewardCounters counters = worker.counters();
  EXPECT_EQ(counters.wrong_format, 1);
  EXPECT_EQ(counters.timeouts, 1);
  EXPECT_EQ(counters.infra_errors, 1);
  EXPECT_EQ(counters.ok, 2);
  EXPECT_EQ(counters.scored(), 3);
  EXPECT_EQ(counters.failed(), 2);
  EXPECT_EQ(store_.score(0)->outcome, ScoreOutcome::kWrongFormat);
  EXPECT_THAT(store_.failures(1), testing::ElementsAre("timeout: component c: slow"));
}

TEST_F(RewardWorkerTest, CountsAScoreThatComesAfterTheLeaseAsLost) {
  Use([this](const ScoreInput&) {
    store_.ExpireRowLeases();
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.score(0), nullptr);
  EXPECT_EQ(worker.counters().lost, 1);
  EXPECT_EQ(worker.counters().scored(), 0);
}

TEST_F(RewardWorkerTest, SaysThatTheStoreRefusesItsName) {
  store_.FailCalls(1, absl::FailedPreconditionError("reward-1#1 is revoked"));
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_TRUE(worker.counters().fenced);
}

}  // namespace
}  // namespace freshet
