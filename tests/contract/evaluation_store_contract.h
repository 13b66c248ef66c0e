#ifndef FRESHET_TESTS_CONTRACT_EVALUATION_STORE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_EVALUATION_STORE_CONTRACT_H_

// Contract tests: evaluations (EvaluationStore).

#include <memory>
#include <string>
#include <vector>

#include "datastore/evaluation_store.h"
#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

class EvaluationStoreContract : public TrajectoryStoreContract {
 protected:
  EvaluationStore& evaluations() { return store().evaluations(); }
  static EvaluationAnswer AnswerTo(int64_t row, int64_t version = 4) {
    return {row, std::make_shared<const Prompt>(PromptAt(row)),
            std::make_shared<const Response>(ResponseAt(version, static_cast<int32_t>(row) + 1)),
            ""};
  }
  void Begin(int64_t rows, const std::string& id = "e1") {
    ASSERT_EQ(evaluations().Begin(id, rows), absl::OkStatus());
  }
  absl::Status Put(const std::vector<EvaluationAnswer>& answers, const std::string& id = "e1") {
    return evaluations().PutAnswers(id, {0, 4}, answers);
  }
  std::vector<RowLease> EvaluationRows(int64_t n = 1000, const std::string& worker = "r0",
                                       const std::string& request = "") {
    const auto rows = evaluations().LeaseRowsFor({Task::kScore, worker, request, n});
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<RowLease>{};
  }
  absl::Status PutScore(const RowLease& row, double reward) {
    return evaluations().PutFields(Task::kScore, row.token, ScoreOf(reward));
  }
  EvaluationState Read(const std::string& id = "e1") {
    const auto state = evaluations().Read(id);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? *state : EvaluationState{};
  }
};

TEST_P(EvaluationStoreContract, AnswersAreScoredOnceAndReadInRowOrder) {
  Begin(3);
  EXPECT_EQ(Put({AnswerTo(2), AnswerTo(0)}), absl::OkStatus());
  const std::vector<RowLease> rows = EvaluationRows();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].sample.uid, "e1/0");
  EXPECT_EQ(rows[1].sample.prompt->attributes.at("answer"), "2");
  EXPECT_EQ(rows[1].sample.response->response_ids.size(), 3U);
  EXPECT_THAT(EvaluationRows(1000, "r1"), IsEmpty());
  EXPECT_EQ(PutScore(rows[1], 0.5), absl::OkStatus());
  EXPECT_EQ(Put({AnswerTo(1), AnswerTo(0)}), absl::OkStatus()) << "a repeated row is ignored";
  EXPECT_EQ(Read().answered, 3);
  EXPECT_EQ(Read().ended, 1);
  EXPECT_THAT(Read().rows, IsEmpty());
  EXPECT_EQ(PutScore(rows[0], 1.0), absl::OkStatus());
  const std::vector<RowLease> last = EvaluationRows(1);
  ASSERT_THAT(last, SizeIs(1));
  EXPECT_EQ(PutScore(last[0], 0.25), absl::OkStatus());
  EXPECT_EQ(PutScore(last[0], 0.75), absl::OkStatus()) << "repeated";
  const EvaluationState state = Read();
  EXPECT_EQ(state.policy, (PolicyVersion{0, 4}));
  ASSERT_THAT(state.rows, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_NE(state.rows[i].score, nullptr);
    EXPECT_EQ(state.rows[i].response_tokens, static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ(state.rows[0].score->reward, 1.0);
  EXPECT_EQ(state.rows[1].score->reward, 0.25);
  EXPECT_EQ(state.rows[2].score->reward, 0.5);
}

TEST_P(EvaluationStoreContract, NothingOfAnEvaluationCountsAsTraining) {
  Begin(1);
  EXPECT_EQ(Put({AnswerTo(0)}), absl::OkStatus());
  EXPECT_THAT(Rows(Task::kScore), IsEmpty());
  const StoreStats stats = Stats();
  EXPECT_EQ(stats.outstanding, 0);
  EXPECT_EQ(stats.samples_put, 0);
  Produce(1, 0);
  EXPECT_THAT(EvaluationRows(), SizeIs(1));
}

TEST_P(EvaluationStoreContract, OnlyTheCurrentEvaluationIsServed) {
  EXPECT_EQ(Put({AnswerTo(0)}).code(), kPrecondition);
  EXPECT_THAT(EvaluationRows(), IsEmpty());
  Begin(2);
  EXPECT_EQ(Put({AnswerTo(0)}), absl::OkStatus());
  const std::vector<RowLease> old = EvaluationRows();
  Begin(2);  // repeated: no effect
  EXPECT_EQ(Read().answered, 1);
  Begin(1, "e2");
  EXPECT_EQ(evaluations().Read("e1").status().code(), kPrecondition);
  EXPECT_EQ(Put({AnswerTo(1)}).code(), kPrecondition);
  EXPECT_EQ(evaluations().Abandon("e1", "late").code(), kPrecondition);
  EXPECT_EQ(PutScore(old.at(0), 1).code(), kPrecondition);
  EXPECT_EQ(Read("e2").answered, 0);
  EXPECT_EQ(evaluations().End("e1"), absl::OkStatus());
  EXPECT_EQ(Read("e2").abandoned, "");
  EXPECT_EQ(evaluations().Abandon("e2", "no weights"), absl::OkStatus());
  EXPECT_EQ(Read("e2").abandoned, "no weights");
  EXPECT_EQ(evaluations().End("e2"), absl::OkStatus());
  EXPECT_EQ(evaluations().Read("e2").status().code(), kPrecondition);
}

TEST_P(EvaluationStoreContract, RowsWithoutAnAnswerOrScoreFailWithTheReason) {
  Begin(2);
  EXPECT_EQ(Put({{0, nullptr, nullptr, "the prompt is too long"}, AnswerTo(1)}), absl::OkStatus());
  for (int32_t i = 1; i <= options_.max_row_failures; ++i) {
    const std::vector<RowLease> rows = EvaluationRows();
    ASSERT_THAT(rows, SizeIs(1)) << i;
    EXPECT_EQ(evaluations().EndRow(Task::kScore, rows[0].token, RowEnd::kReturned, ""),
              absl::OkStatus());
    EXPECT_EQ(PutScore(rows[0], 1).code(), kPrecondition) << "the lease ended";
    const std::vector<RowLease> again = EvaluationRows();
    ASSERT_THAT(again, SizeIs(1)) << "a returned row has not failed";
    EXPECT_EQ(evaluations().FailRow(Task::kScore, again[0].token, StrCat("crash ", i)),
              absl::OkStatus());
  }
  EXPECT_THAT(EvaluationRows(), IsEmpty());
  const EvaluationState state = Read();
  ASSERT_THAT(state.rows, SizeIs(2));
  EXPECT_EQ(state.rows[0].score, nullptr);
  EXPECT_EQ(state.rows[0].error, "the prompt is too long");
  EXPECT_EQ(state.rows[1].error, "crash 3");
}

TEST_P(EvaluationStoreContract, ExpiredLeasesAreOfferedAgainAndCountAsLostWorkers) {
  Begin(1);
  EXPECT_EQ(Put({AnswerTo(0)}), absl::OkStatus());
  const RowLease first = EvaluationRows().at(0);
  PassLease();
  EXPECT_THAT(*evaluations().RenewLeases("r0", {first.token}), ElementsAre(first.token));
  const RowLease second = EvaluationRows(1, "r1").at(0);
  EXPECT_NE(second.token, first.token);
  EXPECT_EQ(PutScore(first, 1).code(), kPrecondition);
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(options_.lease_ttl / 2);
    EXPECT_THAT(*evaluations().RenewLeases("r1", {second.token}), IsEmpty());
  }
  EXPECT_THAT(*evaluations().RenewLeases("r0", {second.token}), SizeIs(1));
  // The first max_row_failures losses in a row are no failures (DecideRowEnd).
  for (int32_t i = 1; i < 2 * options_.max_row_failures; ++i) {
    EXPECT_THAT(Read().rows, IsEmpty()) << i;
    PassLease();
    EvaluationRows();
  }
  const EvaluationState state = Read();
  ASSERT_THAT(state.rows, SizeIs(1));
  EXPECT_THAT(state.rows[0].error, HasSubstr("expired"));
}

TEST_P(EvaluationStoreContract, ARepeatedRequestReturnsTheSameRows) {
  Begin(3);
  EXPECT_EQ(Put({AnswerTo(0), AnswerTo(1), AnswerTo(2)}), absl::OkStatus());
  const std::vector<RowLease> rows = EvaluationRows(2, "r0", "q1");
  const std::vector<RowLease> again = EvaluationRows(2, "r0", "q1");
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(again[0].token, rows.at(0).token);
  EXPECT_EQ(again[1].token, rows.at(1).token);
  EXPECT_THAT(EvaluationRows(2, "r1", "q1"), SizeIs(1)) << "another worker";
}

TEST_P(EvaluationStoreContract, PuttingAnswersWakesRewardWorkers) {
  Begin(1);
  const uint64_t seen = evaluations().ChangeCount(Topic::kRows);
  EXPECT_EQ(Put({AnswerTo(0)}), absl::OkStatus());
  EXPECT_GT(evaluations().AwaitChange(Topic::kRows, seen, absl::Seconds(30)), seen);
}

TEST_P(EvaluationStoreContract, RefusesMalformedArguments) {
  EXPECT_EQ(evaluations().Begin("", 1).code(), kInvalid);
  EXPECT_EQ(evaluations().Begin("e1", 0).code(), kInvalid);
  EXPECT_EQ(evaluations().Begin("e1", kMaxEvaluationRows + 1).code(), kInvalid);
  Begin(2);
  EXPECT_EQ(Put({AnswerTo(2)}).code(), kInvalid);
  EXPECT_EQ(Put({{0, nullptr, nullptr, ""}}).code(), kInvalid);
  EvaluationAnswer without_prompt = AnswerTo(0);
  without_prompt.prompt = nullptr;
  EXPECT_EQ(Put({without_prompt}).code(), kInvalid);
  EXPECT_EQ(Read().answered, 0);
  EXPECT_EQ(evaluations().LeaseRowsFor({Task::kScore, "", "", 1}).status().code(), kInvalid);
  EXPECT_EQ(Put({AnswerTo(0)}), absl::OkStatus());
  const RowLease row = EvaluationRows().at(0);
  EXPECT_EQ(evaluations().PutFields(Task::kScore, row.token, {}).code(), kInvalid);
  EXPECT_EQ(evaluations().EndRow(Task::kScore, row.token, RowEnd::kExpired, "").code(), kInvalid);
  EXPECT_EQ(PutScore(row, 1), absl::OkStatus()) << "still leased";
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_EVALUATION_STORE_CONTRACT_H_
