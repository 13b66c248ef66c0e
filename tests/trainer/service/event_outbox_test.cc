#include "trainer/service/event_outbox.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/failing_event_log.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Away = FailingEventLog::Away;

OutboxRow StepRow(int64_t step, const std::string& value = "{}") {
  return {{"events", StrCat("step/", step), value}, false};
}
OutboxRow SampleOf(int64_t step, const std::string& value = "{}") {
  return {{"samples", StrCat("sample/", step), value}, true};
}

TEST(EventOutbox, GoStraightThroughWhileTheLogAnswers) {
  FailingEventLog log;
  EventOutbox rows(log, {});
  EXPECT_TRUE(rows.Send({StepRow(1), SampleOf(1)}).ok());
  EXPECT_EQ(rows.waiting(), 0);
  EXPECT_EQ(log.calls, 1);
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/1"));
  EXPECT_THAT(log.Keys("samples"), ElementsAre("sample/1"));
}

TEST(EventOutbox, WaitOutAnOutageAndArriveInOrder) {
  FailingEventLog log;
  EventOutbox rows(log, {});
  ASSERT_TRUE(rows.Send({StepRow(1)}).ok());
  log.away = Away::kYes;
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kPermissionDenied}) {
    log.code = code;
    const int64_t step = 2 + rows.waiting() / 2;
    EXPECT_EQ(rows.Send({StepRow(step), SampleOf(step)}).code(), code);
  }
  EXPECT_EQ(rows.waiting(), 6);
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/1"));
  log.away = Away::kNo;
  EXPECT_TRUE(rows.Send({StepRow(5)}).ok());
  EXPECT_EQ(rows.waiting(), 0);
  EXPECT_EQ(rows.dropped(), 0);
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/1", "step/2", "step/3", "step/4", "step/5"));
  EXPECT_THAT(log.Keys("samples"), ElementsAre("sample/2", "sample/3", "sample/4"));
}

TEST(EventOutbox, ALostAnswerMakesNoSecondRow) {
  FailingEventLog log;
  EventOutbox rows(log, {});
  log.away = Away::kAnswersLost;
  EXPECT_FALSE(rows.Send({StepRow(1), SampleOf(1)}).ok());
  EXPECT_FALSE(rows.Send({}).ok());
  log.away = Away::kNo;
  EXPECT_TRUE(rows.Send({StepRow(2)}).ok());
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/1", "step/2"));
  EXPECT_THAT(log.Keys("samples"), ElementsAre("sample/1"));
}

TEST(EventOutbox, SamplesAreGivenUpBeforeSteps) {
  FailingEventLog log;
  EventOutbox rows(log, {.max_rows = 4});
  log.away = Away::kYes;
  for (int64_t step = 1; step <= 3; ++step) (void)rows.Send({StepRow(step), SampleOf(step)});
  EXPECT_EQ(rows.waiting(), 4);
  EXPECT_EQ(rows.dropped(), 2);
  for (int64_t step = 4; step <= 6; ++step) (void)rows.Send({StepRow(step), SampleOf(step)});
  EXPECT_EQ(rows.waiting(), 4);
  EXPECT_EQ(rows.dropped(), 8);
  log.away = Away::kNo;
  EXPECT_TRUE(rows.Send({}).ok());
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/3", "step/4", "step/5", "step/6"));
  EXPECT_THAT(log.Keys("samples"), IsEmpty());
}

TEST(EventOutbox, TheirBytesAreBoundedToo) {
  FailingEventLog log;
  EventOutbox rows(log, {.max_bytes = 1000});
  log.away = Away::kYes;
  (void)rows.Send({SampleOf(1, std::string(400, 'x')), StepRow(1, std::string(400, 'x'))});
  (void)rows.Send({StepRow(2, std::string(400, 'x'))});
  EXPECT_EQ(rows.waiting(), 2);
  EXPECT_EQ(rows.dropped(), 1);
  (void)rows.Send({StepRow(3, std::string(2000, 'x'))});
  EXPECT_EQ(rows.waiting(), 0) << "a row that is too large by itself";
}

TEST(EventOutbox, ARowThatTheLogNeverTakesHoldsUpNobody) {
  FailingEventLog log;
  EventOutbox rows(log, {});
  OutboxRow bad = StepRow(2);
  bad.event.stream = "";
  EXPECT_TRUE(rows.Send({StepRow(1), bad, StepRow(3)}).ok());
  EXPECT_EQ(rows.waiting(), 0);
  EXPECT_EQ(rows.dropped(), 1);
  EXPECT_THAT(log.Keys("events"), ElementsAre("step/1", "step/3"));
}

TEST(EventOutbox, ManyGoInSeveralCalls) {
  FailingEventLog log;
  EventOutbox rows(log, {});
  log.away = Away::kYes;
  std::vector<OutboxRow> many;
  for (int64_t step = 0; step < 1000; ++step) many.push_back(StepRow(step));
  (void)rows.Send(std::move(many));
  log.away = Away::kNo;
  EXPECT_TRUE(rows.Send({}).ok());
  EXPECT_THAT(log.Keys("events"), SizeIs(1000));
  EXPECT_LE(log.largest, 256U);
}

}  // namespace
}  // namespace freshet
