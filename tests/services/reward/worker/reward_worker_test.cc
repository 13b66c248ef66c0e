#include "services/reward/worker/reward_worker.h"

#include <thread>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "datastore/memory/in_memory_evaluation_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/callback_scorer.h"
#include "tests/services/reward/scorers/scorer_case.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_trajectory_store.h"
#include "tests/testing/forwarding_trajectory_store.h"
#include "tests/testing/log_lines.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

// Token ids are bytes.
std::string Decode(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += static_cast<char>(id);
  return text;
}

Response ResponseOf(const std::string& text, FinishReason finish = FinishReason::kStop) {
  Response response;
  response.response_ids.assign(text.begin(), text.end());
  response.finish = finish;
  return response;
}

StoreOptions StoreOptionsOf() {
  StoreOptions options;
  options.job = "j";
  options.max_row_failures = 3;
  return options;
}

class RewardWorkerTest : public testing::Test {
 protected:
  void Use(CallbackScorer::Function function) {
    scorer_.Add("c", 1.0, std::make_unique<CallbackScorer>(std::move(function)));
  }
  RewardWorker MakeWorker(int64_t batch_rows = 64) {
    RewardWorkerOptions options;
    options.batch_rows = batch_rows;
    options.max_wait = absl::Milliseconds(20);
    return RewardWorker(store_, scorer_, Decode, options);
  }
  void AddRows(int count) {
    for (int i = 0; i < count; ++i) {
      store_.AddRow({i, 0, 0}, {{"answer", "a"}}, ResponseOf(i % 2 == 0 ? "a" : "b"));
    }
  }
  bool AwaitScored(size_t rows) {
    const absl::Time deadline = absl::Now() + kGuard;
    while (absl::Now() < deadline) {
      const uint64_t seen = store_.ChangeCount(Topic::kBatch);
      if (store_.scored_rows() >= rows) return true;
      store_.AwaitChange(Topic::kBatch, seen, kGuard);
    }
    return false;
  }

  FakeTrajectoryStore store_{StoreOptionsOf()};
  CompositeScorer scorer_;
};

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

TEST_F(RewardWorkerTest, GoesOnAfterAStoreError) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(1);
  store_.FailCalls(1, absl::UnavailableError("down"));
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(worker.counters().store_errors, 1);
  EXPECT_FALSE(worker.counters().fenced);
}

TEST_F(RewardWorkerTest, ScoresThatTheStoreDoesNotTakeArePutAgain) {
  int calls = 0;
  Use([&calls](const ScoreInput&) { return ComponentScore{1.0 * ++calls}; });
  AddRows(2);
  store_.FailPuts(2, absl::ResourceExhaustedError("redis is at its memory limit"));
  FakeClock clock;
  RewardWorkerOptions options;
  RewardWorker worker(store_, scorer_, Decode, options, clock);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().unsent, 2);
  EXPECT_EQ(worker.WaitsFor(),
            "scores wait for the datastore since 0: redis is at its memory limit");
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 1) << "not again at once";
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 2);
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(store_.put_rows_calls(), 2) << "the pause doubles";
  clock.Advance(options.first_retry);
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(calls, 2) << "each row is scored once";
  EXPECT_EQ(store_.score(1)->reward, 2);
  EXPECT_EQ(worker.counters().lost, 0);
  EXPECT_EQ(worker.counters().unsent, 0);
  EXPECT_EQ(worker.WaitsFor(), "");
}

TEST_F(RewardWorkerTest, ScoresThatAStoreWithoutTheJobRefusesAreLost) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(2);
  store_.FailPuts(1, absl::NotFoundError("the store is deleted"));
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.counters().lost, 2);
  EXPECT_EQ(worker.counters().unsent, 0);
}

TEST_F(RewardWorkerTest, RunLeasesNoRowWhileTooManyScoresWait) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(50);
  store_.FailPuts(1'000'000, absl::UnavailableError("down"));
  RewardWorkerOptions options;
  options.max_in_hand = 5;
  options.max_wait = absl::Milliseconds(1);
  options.first_retry = options.longest_retry = absl::Milliseconds(1);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  const auto await = [this](const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + kGuard;
    while (!holds() && absl::Now() < deadline) {
      store_.AwaitChange(Topic::kBatch, store_.ChangeCount(Topic::kBatch), absl::Milliseconds(10));
    }
    return holds();
  };
  EXPECT_TRUE(await([this] { return store_.leased_rows() == 5; }));
  const int puts = store_.put_rows_calls();
  EXPECT_TRUE(await([this, puts] { return store_.put_rows_calls() > puts + 20; }));
  EXPECT_EQ(store_.leased_rows(), 5U);
  EXPECT_EQ(worker.counters().unsent, 5);
  store_.FailPuts(0, absl::OkStatus());
  EXPECT_TRUE(AwaitScored(50));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(worker.counters().ok, 50);
  EXPECT_EQ(worker.counters().lost, 0);
}

TEST_F(RewardWorkerTest, ScoresThatAreLeftAtTheStopAreTriedOnceMore) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  AddRows(2);
  store_.FailPuts(1, absl::UnavailableError("down"));
  RewardWorkerOptions options;
  options.first_retry = absl::Hours(1);
  RewardWorker worker(store_, scorer_, Decode, options);
  EXPECT_EQ(worker.RunOnce(), 0);
  std::stop_source stop;
  stop.request_stop();
  worker.Run(stop.get_token());
  EXPECT_EQ(store_.scored_rows(), 2U);
}

// Loses the first `lost` answers to LeaseRows.
class LosesAnswers final : public ForwardingTrajectoryStore {
 public:
  LosesAnswers(TrajectoryStore& store, int lost) : ForwardingTrajectoryStore(store), left_(lost) {}
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    ids.push_back(request.request_id);
    absl::StatusOr<std::vector<RowLease>> rows = ForwardingTrajectoryStore::LeaseRowsFor(request);
    if (left_-- > 0) return absl::UnavailableError("the connection broke");
    return rows;
  }
  std::vector<std::string> ids;

 private:
  int left_;
};

TEST_F(RewardWorkerTest, ACallWhoseAnswerWasLostIsRepeatedUnderItsId) {
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  LosesAnswers lossy(store_, 2);
  RewardWorkerOptions options;
  options.request_prefix = "a/";
  RewardWorker worker(lossy, scorer_, Decode, options);
  for (int i = 0; i < 4; ++i) worker.RunOnce();
  EXPECT_THAT(lossy.ids, testing::ElementsAre("a/0", "a/0", "a/0", "a/1"));
}

TEST_F(RewardWorkerTest, AScorerThatIsAwayFailsNoRow) {
  bool away = true;
  int calls = 0;
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    ++calls;
    if (away) return absl::UnavailableError("no route to host:1");
    return ComponentScore{1};
  });
  AddRows(2);
  FakeClock clock;
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions(), clock);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(worker.RunOnce(), 0);
    clock.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(worker.WaitsFor(),
            "rows wait for their scorer since 1m40s: component c: no route to host:1");
  EXPECT_THAT(store_.failures(0), testing::IsEmpty());
  EXPECT_EQ(worker.counters().failed(), 0);
  EXPECT_EQ(worker.counters().returned, calls);
  away = false;
  EXPECT_EQ(worker.RunOnce(), 2);
  EXPECT_EQ(worker.WaitsFor(), "");
}

TEST_F(RewardWorkerTest, ARowInWhoseMiddleTheScorerGoesAwayFailsEverySecondTime) {
  Use([](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    if (input.completion == "a") return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(2);
  RewardWorker worker = MakeWorker(/*batch_rows=*/1);
  for (size_t failures = 0; failures < 3; ++failures) {
    EXPECT_EQ(worker.RunOnce(), 0);
    EXPECT_EQ(store_.failures(0).size(), failures);
    EXPECT_EQ(worker.RunOnce(), 0);
    EXPECT_EQ(store_.failures(0).size(), failures + 1);
    EXPECT_THAT(worker.WaitsFor(), testing::HasSubstr("rows wait for their scorer"));
  }
  EXPECT_EQ(worker.RunOnce(), 1);
  EXPECT_EQ(worker.counters().returned, 3);
  EXPECT_EQ(worker.counters().infra_errors, 3);
}

TEST_F(RewardWorkerTest, ARowThatIsScoredIsNoSuspectAnyMore) {
  int calls = 0;
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    if (++calls % 2 == 1) return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_EQ(worker.RunOnce(), 1);
  AddRows(1);  // with the same name
  EXPECT_EQ(worker.RunOnce(), 0);
  EXPECT_THAT(store_.failures(1), testing::IsEmpty());
  EXPECT_EQ(worker.RunOnce(), 1);
}

TEST_F(RewardWorkerTest, RunBlamesNoRowForAScorerThatGoesAwayFromSeveral) {
  std::atomic<int> inside{0}, calls{0};
  Notification met;
  Use([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    const bool kills = input.completion == "a";
    if (kills) ++calls;
    if (!met.HasBeenNotified()) {
      if (++inside == 2) met.Notify();
      met.WaitFor(kGuard);
      return absl::AbortedError("the connection broke");
    }
    if (kills) return absl::AbortedError("the connection broke");
    return ComponentScore{1};
  });
  AddRows(2);
  RewardWorkerOptions options;
  options.parallel = 2;
  options.max_wait = absl::Milliseconds(1);
  options.first_retry = options.longest_retry = absl::ZeroDuration();
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(1));
  thread.request_stop();
  thread.join();
  EXPECT_THAT(store_.failures(1), testing::IsEmpty());
  EXPECT_EQ(store_.failures(0).size(), 3u);
  EXPECT_EQ(calls, 1 + 2 * 3);
}

TEST_F(RewardWorkerTest, RunTriesAScorerThatIsAwayLessAndLessOften) {
  std::atomic<int> calls{0};
  std::atomic<bool> away{true};
  Notification tried[4];
  Use([&](const ScoreInput&) -> absl::StatusOr<ComponentScore> {
    if (!away) return ComponentScore{1};
    tried[std::min(calls++, 3)].Notify();
    return absl::UnavailableError("away");
  });
  AddRows(100);
  FakeClock clock;
  RewardWorkerOptions options;
  options.parallel = 4;
  options.batch_rows = 1;
  options.max_wait = absl::Milliseconds(1);
  options.put_period = absl::ZeroDuration();
  RewardWorker worker(store_, scorer_, Decode, options, clock);
  EXPECT_EQ(worker.RunOnce(), 0);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  clock.Advance(options.first_retry);
  EXPECT_TRUE(tried[1].WaitFor(kGuard));
  // One row is tried after each pause; pauses double.
  while (worker.counters().returned < 2) std::this_thread::yield();
  clock.Advance(2 * options.first_retry - absl::Milliseconds(1));
  EXPECT_EQ(calls, 2);
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(tried[2].WaitFor(kGuard));
  while (worker.counters().returned < 3) std::this_thread::yield();
  EXPECT_EQ(calls, 3);
  away = false;
  clock.Advance(options.longest_retry);
  EXPECT_TRUE(AwaitScored(100));
}

TEST_F(RewardWorkerTest, RunScoresRowsThatComeLaterUntilStopped) {
  Notification first, last;
  Use([&](const ScoreInput& input) {
    (input.completion == "1" ? first : last).Notify();
    return ComponentScore{1};
  });
  RewardWorker worker = MakeWorker();
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  store_.AddRow({0, 0, 0}, {}, ResponseOf("1"));
  EXPECT_TRUE(first.WaitFor(kGuard));
  store_.AddRow({1, 0, 0}, {}, ResponseOf("2"));
  EXPECT_TRUE(last.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 2u);
}

// Notifies when a lease first returns fewer rows than requested.
class WatchedLeases final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    absl::StatusOr<std::vector<RowLease>> rows = ForwardingTrajectoryStore::LeaseRowsFor(request);
    const bool fewer = rows.ok() && std::ssize(*rows) < request.max_rows;
    if (fewer && !std::exchange(told_, true)) none_left.Notify();
    return rows;
  }
  Notification none_left;

 private:
  bool told_ = false;  // used only by the worker's leasing thread
};

TEST_F(RewardWorkerTest, RunLeasesNoMoreOftenThanItsPeriod) {
  WatchedLeases watched(store_);
  Use([](const ScoreInput&) { return ComponentScore{1}; });
  RewardWorkerOptions options;
  options.lease_period = absl::Hours(1);
  RewardWorker worker(watched, scorer_, Decode, options);
  AddRows(1);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(watched.none_left.WaitFor(kGuard));
  store_.AddRow({1, 0, 0}, {}, ResponseOf("2"));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 1u);
}

TEST_F(RewardWorkerTest, RunScoresSeveralRowsAtTheSameTime) {
  Mutex mu;
  int running = 0;
  Notification three;
  Use([&](const ScoreInput&) {
    {
      MutexLock lock(mu);
      if (++running == 3) three.Notify();
    }
    // Blocks until three calls are in progress.
    EXPECT_TRUE(three.WaitFor(kGuard));
    return ComponentScore{1};
  });
  AddRows(3);
  RewardWorkerOptions options;
  options.parallel = 3;
  options.batch_rows = 1;
  options.max_wait = absl::Milliseconds(20);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(three.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 3u);
  EXPECT_EQ(worker.counters().ok, 3);
}

TEST_F(RewardWorkerTest, ParallelThreadsScoreEachRowOnce) {
  std::atomic<int> calls{0};
  Notification all;
  Use([&](const ScoreInput&) {
    if (++calls == 500) all.Notify();
    return ComponentScore{1};
  });
  AddRows(500);
  RewardWorkerOptions options;
  options.parallel = 4;
  options.max_wait = absl::Milliseconds(20);
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(all.WaitFor(kGuard));
  thread.request_stop();
  store_.Close();
  thread.join();
  EXPECT_EQ(calls, 500);
  EXPECT_EQ(store_.scored_rows(), 500u);
}

TEST_F(RewardWorkerTest, ASlowRowHoldsBackNoOther) {
  Notification others_put;
  Use([&](const ScoreInput& input) {
    if (input.completion == "slow") others_put.WaitFor(kGuard);
    return ComponentScore{1};
  });
  store_.AddRow({0, 0, 0}, {}, ResponseOf("slow"));
  for (int i = 1; i <= 20; ++i) store_.AddRow({i, 0, 0}, {}, ResponseOf("quick"));
  RewardWorkerOptions options;
  options.parallel = 2;
  RewardWorker worker(store_, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(20));
  EXPECT_EQ(store_.score(0), nullptr);
  others_put.Notify();
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 21u);
}

TEST_F(RewardWorkerTest, AScoreIsPutWhileEveryThreadIsBusyWithTheNext) {
  Notification others_put;
  Use([&](const ScoreInput& input) {
    if (input.completion == "slow") others_put.WaitFor(kGuard);
    return ComponentScore{1};
  });
  // Rows are leased one and two at a time, so the second quick row is held while the slow one runs.
  for (int i = 0; i < 2; ++i) store_.AddRow({i, 0, 0}, {}, ResponseOf("quick"));
  store_.AddRow({2, 0, 0}, {}, ResponseOf("slow"));
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions());
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(AwaitScored(2));
  others_put.Notify();
  EXPECT_TRUE(AwaitScored(3));
}

TEST_F(RewardWorkerTest, WhatNoThreadCanScoreIsLeftToOtherWorkers) {
  Notification scoring, finish;
  Use([&](const ScoreInput&) {
    scoring.Notify();
    EXPECT_TRUE(finish.WaitFor(kGuard));
    return ComponentScore{1};
  });
  AddRows(3);
  RewardWorker worker(store_, scorer_, Decode, RewardWorkerOptions());
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(scoring.WaitFor(kGuard));
  EXPECT_EQ(store_.LeaseRows(Task::kScore, "another", 10)->size(), 2u);
  finish.Notify();
}

TEST_F(RewardWorkerTest, AStopGivesUpCallsThatWait) {
  Notification scoring;
  Use([&](const ScoreInput& input) -> absl::StatusOr<ComponentScore> {
    Notification cancelled;
    const std::stop_callback on_cancel(input.cancel, [&] { cancelled.Notify(); });
    scoring.Notify();
    if (cancelled.WaitFor(kGuard)) return absl::CancelledError("given up");
    return ComponentScore{1};
  });
  AddRows(1);
  RewardWorker worker = MakeWorker();
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(scoring.WaitFor(kGuard));
  thread.request_stop();
  thread.join();
  EXPECT_EQ(store_.scored_rows(), 0u);
  EXPECT_THAT(store_.failures(0), testing::IsEmpty()) << "no fault of the row";
  EXPECT_EQ(worker.counters().lost, 1);
  EXPECT_EQ(worker.counters().failed(), 0);
}

// Counts AwaitChange calls for rows.
class CountingWaits final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    if (++waits_ == 50) fifty.Notify();
    return ForwardingTrajectoryStore::AwaitChange(topic, seen, timeout);
  }
  Notification fifty;

 private:
  std::atomic<int> waits_{0};
};

TEST_F(RewardWorkerTest, AsksForRowsWhenThereMayBeSome) {
  CountingWaits watched(store_);
  RewardWorkerOptions options;
  options.parallel = 4;
  options.max_wait = absl::Milliseconds(1);
  options.look_again = absl::Hours(1);
  RewardWorker worker(watched, scorer_, Decode, options);
  std::jthread thread([&worker](std::stop_token stop) { worker.Run(stop); });
  EXPECT_TRUE(watched.fifty.WaitFor(kGuard));
  EXPECT_EQ(store_.lease_rows_calls(), 1);
}

TEST_F(RewardWorkerTest, RunReturnsWithoutCloseOnceStopped) {
  RewardWorker worker = MakeWorker();
  Notification done;
  std::jthread thread([&](std::stop_token stop) {
    worker.Run(stop);
    done.Notify();
  });
  thread.request_stop();
  EXPECT_TRUE(done.WaitFor(kGuard));
}

TEST_F(RewardWorkerTest, WorkersShareTheRows) {
  std::atomic<int> calls{0};
  Use([&calls](const ScoreInput&) {
    ++calls;
    return ComponentScore{1};
  });
  AddRows(500);
  RewardWorker a = MakeWorker(7), b = MakeWorker(7);
  {
    std::jthread thread([&a] {
      while (a.RunOnce() > 0) {
      }
    });
    while (b.RunOnce() > 0) {
    }
  }
  EXPECT_EQ(calls, 500);
  EXPECT_EQ(store_.scored_rows(), 500u);
  EXPECT_EQ(a.counters().ok + b.counters().ok, 500);
}

}  // namespace
}  // namespace freshet
