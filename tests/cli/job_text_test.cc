#include "cli/format/job_text.h"

#include <string>
#include <vector>

#include "cli/format/paint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using job::v1::Event;
using job::v1::Job;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kStart = 1700000000;

Job Running() {
  Job job;
  job.set_id("sums-1");
  job.set_name("sums");
  job.set_state(job::v1::JOB_STATE_RUNNING);
  job.set_step(12);
  job.set_steps(140);
  job.set_lineage(1);
  job.set_reward_mean(0.51234);
  job.mutable_created()->set_seconds(kStart);
  job.mutable_started()->set_seconds(kStart + 5);
  return job;
}

Job Failed() {
  Job job;
  job.set_id("b");
  job.set_state(job::v1::JOB_STATE_FAILED);
  job.set_reason("dataset.path: no such file");
  job.set_steps(10);
  job.set_priority(-3);
  job.mutable_created()->set_seconds(kStart - 3600);
  return job;
}

absl::Time Now() { return absl::FromUnixSeconds(kStart + 65); }

TEST(JobText, TableOfJobs) {
  EXPECT_EQ(FormatJobs({Running(), Failed()}, OutputFormat::kTable, Now()),
            "ID      STATE    STEP    REWARD  EVAL  TIME   AGE\n"
            "sums-1  RUNNING  12/140  0.512   -     1m00s  1m05s\n"
            "b       FAILED   0/10    -       -     -      1h01m\n");
}

TEST(JobText, WideTableOfJobs) {
  EXPECT_EQ(FormatJobs({Failed()}, OutputFormat::kWide, Now()),
            "ID  STATE   STEP  REWARD  EVAL  TIME  AGE    NAME  PRIORITY  LINEAGE  REASON\n"
            "b   FAILED  0/10  -       -     -     1h01m  -     -3        0        "
            "dataset.path: no such file\n");
}

TEST(JobText, NamesOneALine) {
  EXPECT_EQ(FormatJobs({Running(), Failed()}, OutputFormat::kName, Now()), "sums-1\nb\n");
}

TEST(JobText, JsonIsAnArrayForAListAndAnObjectForOne) {
  EXPECT_THAT(FormatJobs({Running()}, OutputFormat::kJson, Now()), testing::StartsWith("[\n"));
  EXPECT_THAT(FormatJob(Running(), OutputFormat::kJson, Now()),
              AllOf(testing::StartsWith("{\n"), HasSubstr("\"state\": \"RUNNING\"")));
  EXPECT_THAT(FormatJob(Running(), OutputFormat::kYaml, Now()), HasSubstr("state: RUNNING\n"));
  EXPECT_EQ(FormatJobs({}, OutputFormat::kJson, Now()), "[]\n");
}

TEST(JobText, StatesInAnyCase) {
  EXPECT_EQ(*ParseState("running"), job::v1::JOB_STATE_RUNNING);
  EXPECT_EQ(*ParseState("FAILED"), job::v1::JOB_STATE_FAILED);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseState("unspecified").status()));
  EXPECT_THAT(std::string(ParseState("foo").status().message()), HasSubstr("paused"));
  EXPECT_EQ(StateName(static_cast<job::v1::JobState>(99)), "UNKNOWN");
}

TEST(JobText, DescribesWhatItWaitsForAndItsEvents) {
  Job job = Running();
  job.set_waits_for("step 13 needs 3 groups: 3 rows unscored");
  (*job.mutable_groups())["ready"] = 61;
  (*job.mutable_groups())["queued"] = 20;
  (*job.mutable_ended())["trained"] = 768;
  (*job.mutable_ended())["dropped(too_old)"] = 0;
  (*job.mutable_curated())["skipped"] = 31;
  (*job.mutable_curated())["replayed"] = 0;
  job::v1::DeadGroup* dead = job.add_dead_groups();
  dead->set_prompt(17);
  dead->set_attempt(2);
  dead->set_reason("lease_failed: 5 times: environment game: KeyError\nat line 3");
  Event* event = job.add_recent_events();
  event->mutable_notice()->set_severity("warning");
  event->mutable_notice()->set_kind("worker_lost");
  event->mutable_notice()->set_text("rollout-1 is silent");
  job::v1::Evaluation* greedy = job.add_evaluations();
  greedy->set_name("greedy");
  greedy->set_accuracy(0.5);
  greedy->set_policy_version(10);
  job::v1::Evaluation* sampled = job.add_evaluations();
  sampled->set_name("sampled");
  sampled->set_failed_samples(3);
  (*sampled->mutable_pass_at())[16] = 0.75;
  (*sampled->mutable_pass_at())[1] = 0.25;
  const std::string text = DescribeJob(job, Now(), {80, false});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("waits for   step 13 needs 3 groups: 3 rows unscored\n"),
            HasSubstr("step        12/140 (lineage 1)\n"),
            HasSubstr("evaluation  greedy 0.500 (version 10)\n"
                      "evaluation  sampled 0.000, pass@1 0.250, pass@16 0.750, 3 samples failed "
                      "(version 0)\n"),
            HasSubstr("groups      20 queued, 61 ready\n"), HasSubstr("ended       trained 768\n"),
            HasSubstr("curated     skipped 31\n"),
            HasSubstr(" prompt 17, attempt 2: lease_failed: 5 times: environment game: KeyError"),
            HasSubstr("warning worker_lost: rollout-1 is silent\n"), Not(HasSubstr("\x1b"))));
}

TEST(JobText, DescribesStaleSamplesThatNothingCorrects) {
  Job job = Running();
  job.mutable_spec()->set_group_size(4);
  job.mutable_spec()->set_prompts_per_step(8);
  job.mutable_spec()->mutable_staleness()->set_max(2);
  EXPECT_THAT(DescribeJob(job, Now(), {80, false}), Not(HasSubstr("warning")));
  job.mutable_spec()->mutable_loss()->mutable_correction()->set_kind("none");
  EXPECT_THAT(DescribeJob(job, Now(), {80, false}),
              HasSubstr("warning     samples up to 2 versions old are trained without"));
}

TEST(JobText, DescribesTheLossAndWhatItsRulesDid) {
  Job job = Running();
  job.mutable_spec()->set_group_size(4);
  job.mutable_spec()->set_prompts_per_step(8);
  job.mutable_spec()->mutable_loss()->set_turn_entropy_share(0.8);
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss_masked_turns = 4;
  metrics.loss_masked_tokens = 57;
  metrics.loss_weighted_tokens = 12;
  metrics.samples_not_asked = 5;
  metrics.samples_duplicated = 3;
  job.add_recent_events()->set_metrics_json(ToJson(metrics));
  EXPECT_THAT(
      DescribeJob(job, Now(), {80, false}),
      AllOf(HasSubstr("loss        {advantage: grpo, "), HasSubstr(", turn_entropy_share: 0.8}\n"),
            HasSubstr("staleness max 0; without loss 4 turns, 57 tokens; weighted 12 tokens; "
                      "5 samples not asked, replaced by 3 duplicates")));
}

TEST(JobText, DescribesRanks) {
  Job job = Running();
  job.add_ranks()->set_state("joins");
  job::v1::Rank* rank = job.add_ranks();
  rank->set_rank(1);
  rank->set_state("computes");
  rank->set_step(12);
  rank->set_last_collective("all-reduce of gradients");
  EXPECT_THAT(
      DescribeJob(job, Now(), {80, false}),
      HasSubstr("rank 0      joins\n"
                "rank 1      computes, step 12, last collective: all-reduce of gradients\n"));
}

TEST(JobText, DescribesHowManyRolloutsThereShouldBe) {
  Job job = Running();
  job::v1::PoolScale* scale = job.mutable_rollouts();
  scale->set_pool("default");
  scale->set_ready(2);
  scale->set_wanted(4);
  scale->set_reason("trainer_waits");
  scale->set_text("the trainer waits 34 % of its time");
  EXPECT_THAT(DescribeJob(job, Now(), {80, false}),
              HasSubstr("rollouts    2 of 4 ready in pool default\n"));
  scale->set_min(1);
  scale->set_max(8);
  EXPECT_THAT(
      DescribeJob(job, Now(), {80, false}),
      HasSubstr("rollouts    2 of 4 ready in pool default, which has 1 to 8; trainer waits: "
                "the trainer waits 34 % of its time\n"));
}

TEST(JobText, EventsOnOneLine) {
  Event event;
  event.mutable_time()->set_seconds(kStart);
  event.mutable_state()->set_state(job::v1::JOB_STATE_PAUSED);
  event.mutable_state()->set_reason("by ann");
  EXPECT_EQ(FormatEvent(event, 0, absl::UTCTimeZone()), "22:13:20 state PAUSED: by ann");
  StepMetrics metrics;
  metrics.step = 3;
  metrics.reward_mean = 0.25;
  metrics.staleness_max = 2;
  event.set_metrics_json(ToJson(metrics));
  EXPECT_EQ(FormatEvent(event, 10, absl::UTCTimeZone()),
            "22:13:20 step 3/10 reward 0.250 staleness max 2");
  event.set_metrics_json("{");
  EXPECT_THAT(FormatEvent(event, 10, absl::UTCTimeZone()), HasSubstr("cannot be read"));
}

TEST(JobText, CheckpointsAsATable) {
  job::v1::ListCheckpointsReply reply;
  job::v1::CheckpointInfo* info = reply.add_checkpoints();
  info->set_version(40);
  info->set_lineage(1);
  info->set_size_bytes(12345678);
  info->set_manifest_sha256("0123456789abcdef");
  info->set_path("/state/step-40");
  EXPECT_EQ(FormatCheckpoints(reply, OutputFormat::kTable),
            "STEP  LINEAGE  ACCURACY  SIZE    SHA256        PATH\n"
            "40    1        -         12.3MB  0123456789ab  /state/step-40\n");
  reply.mutable_checkpoints(0)->set_accuracy(0.9386);
  EXPECT_THAT(FormatCheckpoints(reply, OutputFormat::kTable), testing::HasSubstr("0.939"));
  EXPECT_EQ(FormatCheckpoints(reply, OutputFormat::kName), "40\n");
}

TEST(JobText, SampleShowsTextAndCannotMoveTheCursor) {
  const absl::StatusOr<std::string> text = FormatSample(
      R"({"uid":"j/1/0/2","step":4,"prompt":"12+3=","completion":"015\u001b[2J","reward":0.5,)"
      R"("components":{"exact":1.0,"bad":null},"tokens":4,"finish":"stop"})",
      {80, false});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text,
            "j/1/0/2  step 4  reward 0.5  exact 1  bad -  4 tokens  stop\n"
            "  prompt\n    12+3=\n"
            "  completion\n    015\ufffd[2J\n");
  EXPECT_TRUE(absl::IsInvalidArgument(FormatSample("[", {80, false}).status()));
}

TEST(JobText, LogEntryOnOneLine) {
  job::v1::LogEntry entry;
  entry.mutable_time()->set_seconds(kStart);
  entry.set_worker("trainer-1");
  entry.set_level("warning");
  entry.set_text("two\nlines");
  EXPECT_EQ(FormatLogEntry(entry, {80, false}, absl::UTCTimeZone()),
            "22:13:20.000 trainer-1 warning two lines");
}

TEST(Paint, OnlyWithColor) {
  EXPECT_EQ(Paint("x", kPaintRed, false), "x");
  EXPECT_EQ(Paint("x", kPaintRed, true), "\x1b[31mx\x1b[0m");
}

}  // namespace
}  // namespace freshet
