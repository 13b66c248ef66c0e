#include "trainer/loop/generated_files.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "tests/trainer/learner/train_groups.h"
#include "tests/trainer/loop/trainer_loop_fixture.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string DecodeNumbers(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += StrCat(text.empty() ? "" : " ", id);
  return text;
}

TrainSample Sample() {
  auto prompt = std::make_shared<Prompt>();
  prompt->prompt_ids = {1, 2};
  prompt->attributes = {{"prompt", "the question"}, {"answer", "42"}};
  auto response = std::make_shared<Response>();
  response->response_ids = {3, 4, 5, 6};
  response->behavior_logprobs = {-1, -2, 0, -3};
  response->loss_mask = {1, 1, 0, 1};
  response->finish = FinishReason::kLength;
  response->env_reward = 0.25;
  auto score = std::make_shared<Score>();
  score->reward = 2;
  score->components = {{"right", 1}};
  score->outcome = ScoreOutcome::kWrongFormat;
  TrainSample sample;
  sample.sample = {{7, 0, 1}, "job/7/0/1", "", prompt, response, score};
  sample.loss_mask = response->loss_mask;
  sample.min_version = 3;
  return sample;
}

TEST(GeneratedRowOfASample, HasWhatTheStoreKnows) {
  const GeneratedRow row = MakeGeneratedRow(9, Sample(), DecodeNumbers, /*with_ids=*/false);
  EXPECT_EQ(row.step, 9);
  EXPECT_EQ(row.uid, "job/7/0/1");
  EXPECT_EQ(row.policy_version, 3);
  EXPECT_EQ(row.prompt, "the question");
  EXPECT_EQ(row.completion, "3 4 5 6");
  ASSERT_THAT(row.turns, SizeIs(3));
  EXPECT_EQ(row.turns[0].text, "3 4");
  EXPECT_TRUE(row.turns[0].of_policy);
  EXPECT_EQ(row.turns[1].text, "5");
  EXPECT_FALSE(row.turns[1].of_policy);
  EXPECT_EQ(row.turns[2].tokens, 1);
  EXPECT_EQ(row.reward, 2);
  EXPECT_EQ(row.components, (std::map<std::string, double>{{"right", 1}}));
  EXPECT_EQ(row.outcome, "wrong_format");
  EXPECT_EQ(row.environment_reward, 0.25);
  EXPECT_EQ(row.finish, "length");
  EXPECT_EQ(row.tokens, 4);
  EXPECT_EQ(row.attributes, (std::map<std::string, std::string>{{"answer", "42"}}));
  EXPECT_FALSE(row.ids.has_value());
}

TEST(GeneratedRowOfASample, WithoutAPromptsTextItsTokensAreDecoded) {
  TrainSample sample = Sample();
  auto prompt = std::make_shared<Prompt>(*sample.sample.prompt);
  prompt->attributes.clear();
  sample.sample.prompt = prompt;
  auto response = std::make_shared<Response>(*sample.sample.response);
  response->loss_mask = {1, 1, 1, 1};
  sample.sample.response = response;
  const GeneratedRow row = MakeGeneratedRow(9, sample, DecodeNumbers, /*with_ids=*/true);
  EXPECT_EQ(row.prompt, "1 2");
  EXPECT_THAT(row.turns, IsEmpty());
  EXPECT_THAT(row.ids->prompt, ElementsAre(1, 2));
  EXPECT_THAT(row.ids->completion, ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(row.ids->logprobs, ElementsAre(-1, -2, 0, -3));
}

TEST(GeneratedRowOfASample, OneThatWasNotAskedForSaysNothing) {
  TrainSample sample = Sample();
  MakeNotAsked(sample);
  const GeneratedRow row = MakeGeneratedRow(9, sample, DecodeNumbers, /*with_ids=*/true);
  EXPECT_EQ(row.completion, "");
  EXPECT_EQ(row.tokens, 0);
  EXPECT_THAT(row.turns, IsEmpty());
  EXPECT_THAT(row.ids->completion, IsEmpty());
  EXPECT_THAT(row.ids->logprobs, IsEmpty());
}

class GeneratedFilesTest : public TrainerLoopFixture {
 protected:
  GeneratedFilesTest() {
    options_.generated = std::make_shared<const GeneratedFiles>(
        GeneratedFiles::Options{folder_, DecodeNumbers, /*with_ids=*/false});
  }
  std::string Name(int64_t step) const { return StrCat(folder_, "/step-0000000", step, ".jsonl"); }
  std::string Text(int64_t step) const { return *ReadFile(Name(step), 1 << 20); }
  std::vector<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename());
    }
    return {names.begin(), names.end()};
  }
  // The uids in the file of a step.
  std::vector<std::string> Uids(int64_t step) const {
    std::vector<std::string> uids;
    std::istringstream lines(Text(step));
    for (std::string line; std::getline(lines, line);) {
      const Json row = Json::parse(line);
      EXPECT_EQ(row["step"], step);
      uids.push_back(row["uid"]);
    }
    return uids;
  }
  void WriteText(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_ = GeneratedFiles::FolderOfRun(dir_.File("checkpoints"));
};

TEST_F(GeneratedFilesTest, EverySampleOfAStepIsInItsFile) {
  EXPECT_EQ(folder_, dir_.File("generated"));
  options_.steps = 2;
  Produce(4);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(Names(), ElementsAre("step-00000001.jsonl", "step-00000002.jsonl"));
  EXPECT_THAT(Uids(1), ElementsAre("job/0/0/0", "job/0/0/1", "job/1/0/0", "job/1/0/1"));
  EXPECT_THAT(Uids(2), ElementsAre("job/2/0/0", "job/2/0/1", "job/3/0/0", "job/3/0/1"));
}

TEST_F(GeneratedFilesTest, AFileIsThereBeforeItsStepIsDurableAndOnlyForCommittedSteps) {
  options_.steps = 2;
  options_.checkpoint_every = 1;
  // Of step 1, then of step 2; other points are reached on other threads.
  std::vector<bool> before, after;
  const auto exists = [&](const std::vector<bool>& earlier) {
    return std::filesystem::exists(Name(static_cast<int64_t>(earlier.size()) + 1));
  };
  points_.on_reach = [&](std::string_view point) {
    if (point == "optimizer_step") before.push_back(exists(before));
    if (point == "commit") after.push_back(exists(after));
  };
  Produce(4);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(before, ElementsAre(false, false));
  EXPECT_THAT(after, ElementsAre(true, true));
}

// A trainer that died between CommitStep and its files.
TEST_F(GeneratedFilesTest, ARedoneStepGivesTheFileThatItsFormerTrainerWouldHaveGiven) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  options_.steps = 3;
  WriteText("step-00000001.jsonl.tmp", "{\"torn");
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(Names(),
              ElementsAre("step-00000001.jsonl", "step-00000002.jsonl", "step-00000003.jsonl"));
  EXPECT_THAT(Uids(1), ElementsAre("job/0/0/0", "job/0/0/1", "job/1/0/0", "job/1/0/1"));
  const std::string first = Text(1);
  const std::string third = Text(3);
  // Another one starts from version 0 and redoes all three.
  std::filesystem::remove(Name(2));
  TrainerLoop again(store(), learner_, publisher_, observer_, clock_, points_, options_);
  ASSERT_TRUE(again.Start(false).ok());
  EXPECT_EQ(Text(1), first);
  EXPECT_EQ(Text(3), third);
  std::set<std::string> uids;
  for (const int64_t step : {1, 2, 3}) {
    for (const std::string& uid : Uids(step)) EXPECT_TRUE(uids.insert(uid).second) << uid;
  }
  EXPECT_THAT(uids, SizeIs(3 * 2 * 2)) << "every sample once";
}

TEST_F(GeneratedFilesTest, FilesOfStepsThatAreNotPartOfTheHistoryAreRemoved) {
  WriteText("step-00000001.jsonl", "of this history\n");
  WriteText("step-00000002.jsonl", "of a lost one\n");
  WriteText("step-00000002.jsonl.gz", "a user's\n");
  WriteText("notes.txt", "a user's\n");
  ASSERT_TRUE(options_.generated->RemoveAfter(1).ok());
  EXPECT_THAT(Names(), ElementsAre("notes.txt", "step-00000001.jsonl", "step-00000002.jsonl.gz"));
}

TEST_F(GeneratedFilesTest, AStepWithoutItsFileIsNotSaved) {
  options_.checkpoint_every = 1;
  Produce(8);
  observer_.on_step = [this](int64_t step) {
    if (step != 2) return;
    std::filesystem::rename(folder_, dir_.File("moved"));
    dir_.Write("generated", "a file in the way");
  };
  const absl::Status status = StartAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(folder_));
  EXPECT_EQ(loop().committed(), 3);
  EXPECT_THAT(Only({"MarkDurable"}), ElementsAre("MarkDurable 1", "MarkDurable 2"));
  // With room for it again, the next trainer writes it.
  std::filesystem::remove(folder_);
  std::filesystem::rename(dir_.File("moved"), folder_);
  options_.loaded = {0, 2};
  TrainerLoop next(store(), learner_, publisher_, observer_, clock_, points_, options_);
  ASSERT_TRUE(next.Start(false).ok());
  EXPECT_THAT(Uids(3), ElementsAre("job/4/0/0", "job/4/0/1", "job/5/0/0", "job/5/0/1"));
}

TEST_F(GeneratedFilesTest, AnotherJobWritesNone) {
  options_.generated = nullptr;
  options_.steps = 1;
  Produce(2);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace freshet
