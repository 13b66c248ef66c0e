#include "cli/format/watch_view.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using job::v1::Event;
using job::v1::Job;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Job SomeJob() {
  Job job;
  job.set_id("sums-1");
  job.set_state(job::v1::JOB_STATE_RUNNING);
  job.set_steps(10);
  job.mutable_spec()->mutable_staleness()->set_max(2);
  return job;
}

Event Step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.reward_mean = 0.5;
  metrics.step_seconds = 2;
  Event event;
  event.set_metrics_json(ToJson(metrics));
  return event;
}

WatchView Pipe() { return WatchView(SomeJob(), {false, false, 80, absl::UTCTimeZone()}); }
WatchView Live() { return WatchView(SomeJob(), {true, false, 80, absl::UTCTimeZone()}); }

TEST(WatchView, APlainLinePerStepInAPipe) {
  WatchView view = Pipe();
  EXPECT_THAT(view.Apply(Step(3)), AllOf(StartsWith("step 3/10 reward 0.500 staleness 0/0 of 2"),
                                         EndsWith("\n"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(view.Finish(), "");
}

TEST(WatchView, SaysWhatIsWaitedForOnlyWhenItChanges) {
  WatchView view = Pipe();
  Job job = SomeJob();
  job.set_waits_for("3 rows unscored");
  EXPECT_EQ(view.SetJob(job), "waits for 3 rows unscored\n");
  EXPECT_EQ(view.SetJob(job), "");
  job.set_waits_for("");
  EXPECT_EQ(view.SetJob(job), "");
}

TEST(WatchView, WritesTheStateOfAnEvent) {
  WatchView view = Pipe();
  Event event;
  event.mutable_state()->set_state(job::v1::JOB_STATE_FAILED);
  event.mutable_state()->set_reason("disk full");
  EXPECT_THAT(view.Apply(event), HasSubstr("state FAILED: disk full\n"));
}

TEST(WatchView, LiveLinesAreRedrawnBelowNotices) {
  WatchView view = Live();
  Job job = SomeJob();
  (*job.mutable_groups())["ready"] = 7;
  job.set_waits_for("rollouts");
  view.SetJob(job);
  const std::string first = view.Apply(Step(1));
  // Clears the two previous lines, then writes three.
  EXPECT_THAT(first, StartsWith("\r\x1b[1A\x1b[J"));
  EXPECT_THAT(first, AllOf(HasSubstr("1/10"), HasSubstr("groups: 7 ready"),
                           HasSubstr("waits for rollouts")));
  const std::string note = view.Note("connection lost");
  EXPECT_THAT(note, StartsWith("\r\x1b[2A\x1b[Jconnection lost\n"));
  EXPECT_THAT(note, HasSubstr("waits for rollouts"));
  EXPECT_EQ(view.Finish(), "\n");
  EXPECT_EQ(view.Finish(), "");
}

TEST(WatchView, LiveLinesFitTheWidth) {
  WatchView view(SomeJob(), {true, false, 40, absl::UTCTimeZone()});
  Job job = SomeJob();
  job.set_waits_for(std::string(200, 'x'));
  const std::string text = view.SetJob(job);
  EXPECT_LE(Columns(text.substr(0, text.find("\x1b[K"))), 39);
}

TEST(WatchView, ComparesAnEvaluationWithTheFirst) {
  WatchView view = Pipe();
  EvalMetrics eval;
  eval.eval_name = "heldout";
  eval.eval_accuracy = 0.25;
  Event event;
  event.set_metrics_json(ToJson(eval));
  EXPECT_THAT(view.Apply(event), Not(HasSubstr("first")));
  eval.eval_accuracy = 0.75;
  event.set_metrics_json(ToJson(eval));
  EXPECT_THAT(view.Apply(event), HasSubstr("0.750, first 0.250"));
}

TEST(WatchView, TextOfOthersStaysOnItsLine) {
  WatchView view = Pipe();
  Event event;
  event.mutable_notice()->set_text("a\nb\x1b[2J");
  const std::string text = view.Apply(event);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace freshet
