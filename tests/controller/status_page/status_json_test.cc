#include "controller/status_page/status_json.h"

#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runlog/samples_log.h"
#include "runlog/step_metrics.h"

namespace freshet {
namespace {

using ::nlohmann::json;

job::v1::Job SomeJob() {
  job::v1::Job job;
  job.set_id("add-1");
  job.set_name("add");
  job.set_state(job::v1::JOB_STATE_RUNNING);
  job.set_reason("the trainer is at work");
  job.mutable_created()->set_seconds(1'000'000'000);
  job.mutable_created()->set_nanos(250'000'000);
  job.set_step(7);
  job.set_steps(9);
  job.mutable_spec()->mutable_staleness()->set_max(2);
  job.mutable_spec()->mutable_staleness()->set_policy("wait");
  return job;
}

TEST(StatusJson, AListNamesTheServerAndItsJobs) {
  StatusJobs jobs = {{SomeJob()}, /*more=*/true};
  const json body = json::parse(
      JobsToJson({"controller", "0.1.0", true, "h:1"}, jobs, absl::FromUnixSeconds(1'000'000'060)));
  EXPECT_EQ(body["server"], json::parse(R"({"role":"controller","version":"0.1.0","leads":true,
      "leader":"h:1","now":"2001-09-09T01:47:40.000Z"})"));
  ASSERT_EQ(body["jobs"].size(), 1U);
  const json& job = body["jobs"][0];
  EXPECT_EQ(job["id"], "add-1");
  EXPECT_EQ(job["state"], "RUNNING");
  EXPECT_EQ(job["created"], "2001-09-09T01:46:40.250Z");
  EXPECT_TRUE(job["finished"].is_null());
  EXPECT_TRUE(job["eval_accuracy"].is_null());
  EXPECT_EQ(job["step"], 7);
  EXPECT_FALSE(job.contains("yaml"));
  EXPECT_EQ(body["more"], true);
  jobs.more = false;
  EXPECT_EQ(json::parse(JobsToJson({}, jobs, absl::UnixEpoch()))["more"], false);
}

TEST(StatusJson, AJobHasWhatItWaitsForItsGroupsAndEventsWithoutRowsOfMetrics) {
  job::v1::Job job = SomeJob();
  job.set_eval_accuracy(0.0);
  job.set_waits_for("reward: 3 rows unscored");
  (*job.mutable_groups())["ready"] = 4;
  (*job.mutable_ended())["filtered(zero_variance)"] = 1;
  job.add_recent_events()->mutable_state()->set_state(job::v1::JOB_STATE_FAILED);
  job.add_recent_events()->set_metrics_json("{}");
  job.mutable_recent_events(0)->mutable_state()->set_reason("no disk");
  job::v1::Notice& notice = *job.add_recent_events()->mutable_notice();
  notice.set_kind("stalled");
  notice.set_severity("warning");
  notice.set_text("no progress");
  const json body = json::parse(JobToJson(job, "name: add\n"))["job"];
  EXPECT_EQ(body["eval_accuracy"], 0.0);  // measured as 0, not missing
  EXPECT_EQ(body["waits_for"], "reward: 3 rows unscored");
  EXPECT_EQ(body["staleness_max"], 2);
  EXPECT_EQ(body["staleness_policy"], "wait");
  EXPECT_EQ(body["groups"], json::parse(R"({"ready":4})"));
  EXPECT_EQ(body["ended"]["filtered(zero_variance)"], 1);
  EXPECT_EQ(body["ended"].size(), 1U);
  EXPECT_EQ(body["events"], json::parse(R"([
      {"time":null,"kind":"state","severity":"error","text":"FAILED: no disk"},
      {"time":null,"kind":"stalled","severity":"warning","text":"no progress"}])"));
  EXPECT_EQ(body["yaml"], "name: add\n");
}

TEST(StatusJson, RowsAreThoseOfMetricsJsonl) {
  StepMetrics step;
  step.step = 1;
  EvalMetrics eval;
  eval.eval_name = "heldout";
  StatusRows rows;
  rows.rows = {ToJson(step), ToJson(eval), R"({"event":"stalled"})"};
  rows.cursor = 12;
  rows.more = true;
  const json body = json::parse(MetricsToJson(rows));
  EXPECT_EQ(body["rows"], json({json::parse(ToJson(step)), json::parse(ToJson(eval))}));
  EXPECT_EQ(body["cursor"], 12);
  EXPECT_EQ(body["gap"], false);
  EXPECT_EQ(body["more"], true);
}

TEST(StatusJson, MalformedRowsAreLeftOut) {
  StatusRows rows;
  rows.rows = {"", "{", "[1]", "null", "\xff", R"({"step":"1"})"};
  EXPECT_EQ(json::parse(MetricsToJson(rows))["rows"], json::array());
  EXPECT_EQ(json::parse(SamplesToJson(rows.rows))["samples"], json::array());
}

TEST(StatusJson, SamplesAreShortened) {
  const std::string completion(kMaxSampleText + 1, 'x');
  const json samples = json::parse(SamplesToJson(
      {json({{"step", 1}, {"completion", completion}, {"secret", 1}}).dump()}))["samples"];
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0]["truncated"], true);
  EXPECT_FALSE(samples[0].contains("secret"));
}

TEST(StatusJson, PoolsCountThoseThatAreReadyAndShowThoseThatAreMissing) {
  job::v1::Cluster cluster;
  const std::vector<std::pair<const char*, int>> workers = {
      {"ready", 5}, {"ready", 3}, {"lost", 1}};
  for (const auto& [state, version] : workers) {
    job::v1::Worker& worker = *cluster.add_workers();
    worker.set_name(StrCat("rollout-", version));
    worker.set_role("rollout");
    worker.set_pool("default");
    worker.set_state(state);
    worker.set_version(version);
    worker.set_busy_ratio(0.5);
    worker.set_tokens_per_second(10);
    worker.set_restarts(1);
  }
  (*cluster.mutable_wanted())["rollout"] = 3;
  (*cluster.mutable_wanted())["rollout/big"] = 1;
  (*cluster.mutable_wanted())["env"] = 0;
  cluster.set_leader("h:1");
  const json body = json::parse(WorkersToJson(cluster));
  EXPECT_EQ(body["leader"], "h:1");
  EXPECT_EQ(body["pools"], json::parse(R"([
      {"name":"rollout","ready":2,"total":3,"wanted":3,"wanted_reason":null,"busy_ratio":0.5,
       "tokens_per_second":20.0,"kv_cache_used_ratio":0.0,"newest_version":5,"oldest_version":3,"restarts":3},
      {"name":"rollout/big","ready":0,"total":0,"wanted":1,"wanted_reason":null,"busy_ratio":0.0,
       "tokens_per_second":0.0,"kv_cache_used_ratio":0.0,"newest_version":0,"oldest_version":0,
       "restarts":0}])"));
  EXPECT_EQ(body["workers"].size(), 3U);
  EXPECT_EQ(body["workers"][2]["state"], "lost");
}

TEST(StatusJson, APoolThatScalesByItselfSaysWhy) {
  job::v1::Cluster cluster;
  job::v1::PoolScale& own = *cluster.add_pools();
  own.set_pool("default");
  own.set_wanted(3);
  own.set_max(4);
  own.set_text("the trainer waits");
  job::v1::PoolScale& fixed = *cluster.add_pools();
  fixed.set_pool("big");
  fixed.set_wanted(1);
  fixed.set_text("asked for by hand");
  (*cluster.mutable_wanted())["rollout"] = 2;
  const json pools = json::parse(WorkersToJson(cluster))["pools"];
  ASSERT_EQ(pools.size(), 1U);
  EXPECT_EQ(pools[0]["name"], "rollout");
  EXPECT_EQ(pools[0]["wanted"], 3);
  EXPECT_EQ(pools[0]["wanted_reason"], "the trainer waits");
}

TEST(StatusJson, BytesThatAreNotUtf8AreReplaced) {
  job::v1::Cluster cluster;
  cluster.add_workers()->set_waits_for("\xc3(");
  EXPECT_EQ(json::parse(WorkersToJson(cluster))["workers"][0]["waits_for"], "\xEF\xBF\xBD(");
  EXPECT_EQ(json::parse(ErrorToJson(NotFound("job \xff")))["error"]["code"], "NOT_FOUND");
}

}  // namespace
}  // namespace freshet
