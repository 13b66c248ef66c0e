#include "job/proto_json.h"

#include <string>

#include "freshet/job/v1/job_service.pb.h"
#include "gtest/gtest.h"
#include "yaml-cpp/yaml.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

job::v1::Job SomeJob() {
  job::v1::Job job;
  job.set_id("sums-1");
  job.set_state(job::v1::JOB_STATE_RUNNING);
  job.set_step(int64_t{1} << 40);
  job.mutable_created()->set_seconds(1700000000);
  job.mutable_created()->set_nanos(250000000);
  job.mutable_spec()->set_seed(7);
  job::v1::Row* row = job.mutable_spec()->mutable_dataset()->add_rows();
  (*row->mutable_values())["noun"] = "girl";
  (*job.mutable_groups())["ready"] = 3;
  return job;
}

TEST(ProtoJson, WritesIntegersAsNumbersEnumsShortAndTimesAsText) {
  const Json json = ProtoToJson(SomeJob());
  EXPECT_EQ(json["id"], "sums-1");
  EXPECT_EQ(json["state"], "RUNNING");
  EXPECT_EQ(json["step"], int64_t{1} << 40);
  EXPECT_EQ(json["created"], "2023-11-14T22:13:20.250Z");
  EXPECT_EQ(json["groups"]["ready"], 3);
}

TEST(ProtoJson, LeavesOutWhatIsAbsentAndKeepsZeros) {
  const Json json = ProtoToJson(SomeJob());
  EXPECT_FALSE(json.contains("eval_accuracy"));
  EXPECT_FALSE(json.contains("finished"));
  EXPECT_EQ(json["priority"], 0);
  EXPECT_FALSE(json["spec"].contains("group_size"));
}

TEST(ProtoJson, WritesRowsOfATemplateInline) {
  EXPECT_EQ(ProtoToJson(SomeJob())["spec"]["dataset"]["rows"].dump(), R"([{"noun":"girl"}])");
}

TEST(ProtoJson, ParsesEmbeddedJsonAndKeepsWhatIsNone) {
  job::v1::Event event;
  event.set_metrics_json(R"({"step": 3})");
  EXPECT_EQ(ProtoToJson(event)["metrics"]["step"], 3);
  event.set_metrics_json("{torn");
  EXPECT_EQ(ProtoToJson(event)["metrics_json"], "{torn");
}

TEST(JsonToYaml, IsReadBackAsTheSameValues) {
  const Json json = {
      {"plain", "abc"},         {"number_text", "12"}, {"word", "true"},
      {"colon", "a: b # c"},    {"lines", "x\ny"},     {"list", {1, 2.5, Json{{"k", "v"}}}},
      {"empty", Json::array()}, {"none", nullptr},     {"nested", {{"deep", {{"x", false}}}}}};
  const YAML::Node yaml = YAML::Load(JsonToYaml(json));
  for (const char* key : {"plain", "number_text", "word", "colon", "lines"}) {
    EXPECT_EQ(yaml[key].as<std::string>(), json[key].get<std::string>());
    EXPECT_TRUE(key == std::string("plain") || yaml[key].Tag() == "!") << key;
  }
  EXPECT_EQ(yaml["list"][1].as<double>(), 2.5);
  EXPECT_EQ(yaml["list"][2]["k"].as<std::string>(), "v");
  EXPECT_EQ(yaml["empty"].size(), 0U);
  EXPECT_TRUE(yaml["none"].IsNull());
  EXPECT_FALSE(yaml["nested"]["deep"]["x"].as<bool>());
}

}  // namespace
}  // namespace freshet
