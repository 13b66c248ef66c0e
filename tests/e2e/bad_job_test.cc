// Job files, datasets and run folders that cannot work: one line per error with place and fix, the
// right exit code, and nothing left behind.
#include "tests/e2e/refusal_fixture.h"

namespace freshet {
namespace {

class BadJobTest : public RefusalFixture {};

TEST_F(BadJobTest, Files) {
  ExpectRefused({"missing.yaml"}, {"missing.yaml: "});
  ExpectRefused({folder_.path()}, {folder_.path() + ": not a regular file"});
  RefuseText("", {"job.yaml: is empty"});
  RefuseText(std::string("\x7f"
                         "ELF\0\1\2\3",
                         8),
             {"job.yaml:1: "});
  RefuseText("name: \xff\xfe\n", {"job.yaml:1: "});
  RefuseText("name: [unclosed\n", {"job.yaml:"});
}

TEST_F(BadJobTest, HostileYaml) {
  RefuseText("name: &a [*a]\n", {"job.yaml:1: "});
  RefuseText("a: &a {b: *a}\n", {"job.yaml:1: "});
  RefuseText("name: " + std::string(100000, '[') + std::string(100000, ']') + "\n",
             {"job.yaml:1: "});
  RefuseText(std::string(100000, '{'), {"job.yaml:1: "});
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "- ";
  RefuseText(deep + "x\n", {"job.yaml:1: "});
  deep.clear();
  for (int i = 0; i < 2000; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  RefuseText(deep, {"job.yaml:"});
  // 2^30 strings by reference, if aliases were followed.
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + last + ", *a" + last +
              "]\n";
  }
  RefuseText(laughs, {"job.yaml:"});
  RefuseText(std::string(5 << 20, '#'), {"job.yaml: ", "limit"});
}

TEST_F(BadJobTest, Keys) {
  TinyJob job = MakeTinyJob();
  job["groop_size"] = "8";
  RefuseJob(job, {"job.yaml:", "groop_size", "group_size"});
  Refuse({{"trainer", "{steps: many}"}}, {"job.yaml:", "trainer.steps", "'many'"});
  Refuse({{"trainer", "{steps: 0}"}}, {"job.yaml:", "trainer.steps", "from 1"});
  Refuse({{"trainer", "{}"}}, {"trainer.steps"});
  Refuse({{"trainer", "7"}}, {"job.yaml:", "trainer"});
  Refuse({{"staleness", "{max: -1}"}}, {"job.yaml:", "staleness.max", "-1", "0"});
  Refuse({{"staleness", "{policy: hope}"}}, {"staleness.policy", "wait", "hope"});
  Refuse({{"optimizer", "{learning_rate: -1.0}"}}, {"optimizer.learning_rate"});
  Refuse({{"optimizer", "{learning_rate: .nan}"}}, {"optimizer.learning_rate"});
  Refuse({{"name", "../evil"}}, {"name"});
  Refuse({{"trainer", "{steps: 6, minibatches_per_step: 3}"}}, {"trainer.minibatches_per_step"});
}

TEST_F(BadJobTest, Overrides) {
  WriteJob(MakeTinyJob());
  ExpectRefused({"job.yaml", "--set", "staleness.max=-1"}, {"--set", "staleness.max", "-1"});
  ExpectRefused({"job.yaml", "--set", "staleness.maks=1"},
                {"--set", "staleness.maks", "max, policy"});
  ExpectRefused({"job.yaml", "--set", "nonsense"}, {"--set", "nonsense", "key=value"});
}

TEST_F(BadJobTest, AllFaultsAtOnceUpToFive) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: -1}";
  job["trainer"] = "{steps: 0}";
  job["optimizer"] = "{learning_rate: 0}";
  RefuseJob(job, {"staleness.max", "trainer.steps", "optimizer.learning_rate"}, 3);
  for (const char* key : {"aa", "bb", "cc", "dd"}) job[key] = "1";
  const std::vector<std::string> lines = RefuseJob(job, {"job.yaml"}, 6);
  EXPECT_EQ(lines.back(), "freshet: and 2 more");
}

TEST_F(BadJobTest, Losses) {
  Refuse({{"group_size", "1"}}, {"group_size", "at least 2", "grpo"});
  Refuse({{"loss", "{correction: [{kind: tis, cap: 2.0}, {kind: mask, cap: 3.0}]}"}},
         {"job.yaml:", "loss.correction", "two importance corrections"});
  Refuse({{"loss", "{anchor: behavior, correction: {kind: tis, cap: 2.0}}"}},
         {"job.yaml:", "loss.correction", "two importance corrections", "anchor proximal"});
  Refuse({{"loss", "{anchor: none, correction: {kind: tis, cap: 2.0}}"}},
         {"job.yaml:", "loss.correction", "anchor proximal"});
  Refuse({{"loss", "{preset: grpoo}"}}, {"loss.preset", "grpoo", "grpo"});
}

TEST_F(BadJobTest, Rewards) {
  Refuse({{"reward", "{components: {}}"}}, {"reward.components"});
  Refuse({{"reward", "{components: {r: {type: regex, pattern: \"(\"}}}"}},
         {"reward.components.r", "pattern", "parenthesis"});
  Refuse({{"reward", "{components: {r: {type: magic}}}"}},
         {"reward.components.r.type", "exact_match", "magic"});
  Refuse({{"reward", "{components: {r: {type: contains}}}"}}, {"reward.components.r.text"});
}

TEST_F(BadJobTest, WhatOneProcessCannotDo) {
  Refuse({{"weight_sync", "{transport: grpc_relay}"}},
         {"job.yaml:", "weight_sync.transport", "one process", "submit the job to a cluster"});
  Refuse({{"environment", "{type: guess_number, options: {max: many}}"}},
         {"environment.options.max", "many"});
}

TEST_F(BadJobTest, Capacity) {
  Refuse({{"datastore", "{capacity_groups: 10}"}},
         {"datastore.capacity_groups", "10", "48", "checkpoint"});
  Refuse({{"weight_sync", "{every_steps: 3}"}}, {"weight_sync.every_steps"});
}

TEST_F(BadJobTest, Prompts) {
  Refuse({{"rollout", "{max_new_tokens: 8}"}}, {"rollout.max_new_tokens", "8"});
  folder_.Write("rows.jsonl",
                "{\"question\": \"12\", \"answer\": \"1\"}\n"
                "{\"question\": \"1234567\", \"answer\": \"1\"}\n");
  RefuseJob(JsonlJob(), {"rows.jsonl:2: ", "8 tokens", "more than 4"}, 1);
  folder_.Write("rows.jsonl", "{\"question\": \"1a\", \"answer\": \"1\"}\n");
  RefuseJob(JsonlJob(), {"rows.jsonl:1: ", "'a'"}, 1);
}

TEST_F(BadJobTest, DatasetRows) {
  TinyJob job = JsonlJob();
  RefuseJob(job, {"rows.jsonl: "}, 1);  // no such file
  folder_.Write("rows.jsonl", "");
  RefuseJob(job, {"rows.jsonl"}, 1);
  folder_.Write("rows.jsonl", "{\"question\": \"1\", \"answer\": \"1\"}\n{\"quest\": \"2\"}\n");
  RefuseJob(job, {"rows.jsonl:2: ", "'question'", "quest"});
  folder_.Write("rows.jsonl", "{\"question\": \"1\", \"answer\": \"1\"}\n{\"question\":\n");
  RefuseJob(job, {"rows.jsonl:2: ", "JSON"}, 1);
  folder_.Write("rows.jsonl", "{\"question\": \"1\", \"answer\": \"1\"}\n[1]\n");
  RefuseJob(job, {"rows.jsonl:2: "}, 1);
  std::string rows;
  for (int i = 0; i < 9; ++i) rows += "{\"answer\": \"1\"}\n";
  folder_.Write("rows.jsonl", rows);
  EXPECT_EQ(RefuseJob(job, {"rows.jsonl:1: "}, 6).back(), "freshet: and 4 more");
}

TEST_F(BadJobTest, AnswersThatTheWarmUpCannotUse) {
  TinyJob job = JsonlJob();
  job["warmup"] = "{sft: {steps: 1, learning_rate: 1.0e-3}}";
  folder_.Write("rows.jsonl",
                "{\"question\": \"1\", \"answer\": \"1\"}\n"
                "{\"question\": \"2\", \"answer\": \"two\"}\n");
  RefuseJob(job, {"rows.jsonl:2: ", "answer", "'t'"}, 1);
  folder_.Write("rows.jsonl", "{\"question\": \"1\", \"answer\": \"1234567\"}\n");
  RefuseJob(job, {"rows.jsonl:1: ", "10 tokens", "context", "8"}, 1);
  job["dataset"] = "{type: jsonl, path: rows.jsonl, prompt: \"{question}=\"}";
  job["reward"] = "{components: {r: {type: length, max_tokens: 3}}}";
  RefuseJob(job, {"warmup.sft", "dataset.answer"}, 1);
}

TEST_F(BadJobTest, OutputThatCannotBeWritten) {
  WriteJob(MakeTinyJob());
  folder_.Write("file", "");
  ExpectRefused({"job.yaml", "--run-dir", "file/run"}, {"file"});
  ExpectRefused({"job.yaml", "--run-dir", "/proc/self/run"}, {"/proc/self"});
  ExpectRefused({"job.yaml", "--run-dir", "/dev/null/run"}, {"/dev/null"});
}

TEST_F(BadJobTest, CommandLines) {
  WriteJob(MakeTinyJob());
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"local"},
                                             {"local", "job.yaml", "--resume", "run"},
                                             {"local", "--resume", "run", "--run-dir", "other"},
                                             {"local", "job.yaml", "more.yaml"},
                                             {"local", "job.yaml", "--nonsense"},
                                             {"local", "job.yaml", "--metrics-port", "0"},
                                             {"local", "job.yaml", "--crash-at", "commit"},
                                             {"local", "job.yaml", "--crash-at", "commit:0"}}) {
    const ChildResult result = Freshet(args);
    EXPECT_EQ(result.exit_code, 2) << args.back() << result.err;
    EXPECT_NE(result.err, "") << args.back();
    EXPECT_FALSE(Exists("runs"));
  }
}

}  // namespace
}  // namespace freshet
