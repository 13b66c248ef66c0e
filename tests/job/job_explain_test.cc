#include "job/job_explain.h"

#include "freshet/job/v1/key_options.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Explained(const std::string& path) {
  const absl::StatusOr<std::string> text = ExplainKey(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(ExplainKey, TellsMeaningTypeDefaultAndRange) {
  EXPECT_EQ(
      Explained("reward.timeout_ms"),
      "reward.timeout_ms\n"
      "  Longest time that scoring one sample may take, in milliseconds. Beyond it the attempt\n"
      "  counts as failed, never as a reward of 0.\n"
      "  type: integer\n"
      "  default: 1000\n"
      "  range: 1 to 600000\n");
}

TEST(ExplainKey, TellsAllowedValuesAndAbsence) {
  EXPECT_THAT(Explained("staleness.policy"), HasSubstr("  one of: wait, drop, requeue, mask\n"));
  EXPECT_THAT(Explained("trainer.steps"), HasSubstr("  default: none, the key is required\n"));
  EXPECT_THAT(Explained("rollout.max_inflight_groups"),
              HasSubstr("  when absent: (staleness.max + 1) * prompts_per_step\n"));
  EXPECT_THAT(Explained("loss.clip.low"), HasSubstr("  when absent: what loss.preset says\n"));
  EXPECT_THAT(Explained("dataset.symbols"), HasSubstr("  applies with: type copy\n"));
}

TEST(ExplainKey, ListsTheKeysOfABlock) {
  const std::string text = Explained("weight_sync");
  EXPECT_THAT(text, HasSubstr("  transport    How weights travel.\n"));
  EXPECT_THAT(text, HasSubstr("  every_steps  Training steps between two publications; at most "
                              "staleness.max + 1.\n"));
  EXPECT_THAT(Explained(""), ContainsRegex("\n  rollout +Generation of samples[.]\n"));
  EXPECT_THAT(Explained(""),
              ContainsRegex("\n  policies +Several jobs that are trained together;"));
  EXPECT_THAT(Explained("policies"), HasSubstr("  type: map of name to block of keys\n"));
}

TEST(ExplainKey, UnderstandsEntriesOfMapsAndLists) {
  EXPECT_THAT(Explained("reward.components.mine.weight"), HasSubstr("type: number\n"));
  EXPECT_THAT(Explained("reward.components"), HasSubstr("type: map of name to block of keys\n"));
  EXPECT_THAT(Explained("dataset.rows"), HasSubstr("type: list of map of field to text\n"));
  EXPECT_THAT(Explained("dataset.rows.0.name"), HasSubstr("type: text\n"));
}

TEST(ExplainKey, SuggestsTheNearestKey) {
  const auto message = [](const char* path) {
    return std::string(ExplainKey(path).status().message());
  };
  EXPECT_EQ(message("rollout.max_new_tokns"),
            "unknown key rollout.max_new_tokns; did you mean max_new_tokens?");
  EXPECT_EQ(message("max_attempts"),
            "unknown key max_attempts; did you mean rollout.max_attempts or reward.max_attempts?");
  EXPECT_EQ(message("every_steps"),
            "unknown key every_steps; did you mean weight_sync.every_steps or "
            "checkpoint.every_steps or eval.every_steps?");
  EXPECT_EQ(message("name.x"), "unknown key name.x; what stands before it has no keys");
  for (const char* path :
       {".", "..", "a.", "reward.components.", "reward..x", "dataset.rows.0.a.b"}) {
    EXPECT_FALSE(ExplainKey(path).ok()) << path;
  }
}

TEST(ExplainKey, EveryKeyHasAMeaning) {
  for (const std::string& key : AllJobKeys()) {
    const std::string text = Explained(key);
    EXPECT_THAT(text, Not(HasSubstr(key + "\n  \n"))) << key;
    EXPECT_THAT(text, HasSubstr("\n  type: ")) << key;
  }
}

TEST(AllJobKeys, NamesEntriesOfMapsAndLists) {
  const std::vector<std::string> keys = AllJobKeys();
  for (const char* key : {"name", "model.config.hidden_size", "reward.components.NAME.weight",
                          "dataset.rows.N.NAME", "rollout.stop_token_ids.N", "loss.clip.high"}) {
    EXPECT_THAT(keys, Contains(key));
  }
}

// Validates defaults and conditions, which are plain text in the proto.
void CheckOptions(const google::protobuf::Descriptor& block) {
  for (int i = 0; i < block.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *block.field(i);
    const job::v1::KeyOptions& options = OptionsOf(field);
    if (field.has_presence() && field.cpp_type() != field.CPPTYPE_MESSAGE) {
      EXPECT_TRUE(options.has_default_() || options.required() || !options.when_absent().empty() ||
                  block.name() == "Loss" || block.name() == "Clip" || block.name() == "Kl" ||
                  block.name() == "Correction")
          << field.full_name() << ": what does absence mean?";
      EXPECT_FALSE(options.has_default_() && options.required()) << field.full_name();
    }
    if (!options.when().empty()) {
      const auto condition = ConditionOf(field);
      ASSERT_TRUE(condition.has_value() && condition->sibling != nullptr) << field.full_name();
      for (const std::string& value : condition->values) {
        EXPECT_THAT(SplitList(OptionsOf(*condition->sibling).one_of()), Contains(value))
            << field.full_name();
      }
      EXPECT_LT(condition->sibling->index(), field.index()) << field.full_name();
    }
    if (field.cpp_type() == field.CPPTYPE_MESSAGE) {
      const auto* value = field.is_map() ? field.message_type()->map_value() : &field;
      if (value->cpp_type() == field.CPPTYPE_MESSAGE) CheckOptions(*value->message_type());
    }
  }
}

TEST(KeyOptions, AreConsistent) { CheckOptions(*JobSpec::descriptor()); }

TEST(InitJobTemplate, IsAValidJobWithComments) {
  const std::string text = InitJobTemplate();
  EXPECT_THAT(ErrorLines(text), IsEmpty());
  EXPECT_THAT(text, HasSubstr("# wait | drop | requeue | mask"));
}

}  // namespace
}  // namespace freshet
