#include "cli/commands/local_paths.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LocalPathsTest : public testing::Test {
 protected:
  LocalPathsTest() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
    folder_.Write("rows.jsonl", "{}\n");
    spec_.mutable_dataset()->set_path("./rows.jsonl");
    spec_.mutable_dataset()->set_eval_path("absent.jsonl");
    spec_.mutable_model()->set_path("/absolute");
  }
  ~LocalPathsTest() override { std::filesystem::current_path(before_); }

  const std::filesystem::path before_;
  const ScratchFolder folder_;
  job::v1::JobSpec spec_;
};

TEST_F(LocalPathsTest, MakesWhatExistsAbsoluteForAServerOnThisMachine) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(AbsolutePathOverrides(spec_, "127.0.0.1:7070"),
              ElementsAre("dataset.path=" + here + "/rows.jsonl"));
  EXPECT_THAT(AbsolutePathOverrides(spec_, "localhost:7070").size(), 1U);
  EXPECT_THAT(AbsolutePathOverrides(spec_, "127.0.0.1:7070,127.0.0.1:7071").size(), 1U);
}

TEST_F(LocalPathsTest, EvaluationSetsHaveFilesOfTheirOwn) {
  spec_.mutable_dataset()->clear_path();
  spec_.mutable_eval()->add_sets()->set_name("heldout");
  spec_.mutable_eval()->add_sets()->set_path("rows.jsonl");
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(AbsolutePathOverrides(spec_, "127.0.0.1:7070"),
              ElementsAre("eval.sets.1.path=" + here + "/rows.jsonl"));
}

TEST_F(LocalPathsTest, LeavesThemToAnotherMachine) {
  EXPECT_THAT(AbsolutePathOverrides(spec_, "10.1.2.3:7070"), IsEmpty());
  EXPECT_THAT(AbsolutePathOverrides(spec_, "127.0.0.1:7070,10.1.2.3:7070"), IsEmpty());
}

}  // namespace
}  // namespace freshet
