#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "freshet/job/v1/key_options.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_schema.h"
#include "job/loss_setup.h"

namespace freshet {
namespace {

using ::testing::UnorderedElementsAreArray;

std::vector<std::string> Allowed(const std::string& path) {
  const JobKeyLookup lookup = FindJobKey(path);
  return lookup.key ? SplitList(OptionsOf(*lookup.key->field).one_of())
                    : std::vector<std::string>();
}

TEST(LossKeys, PresetsAreThoseOfTheTrainer) {
  std::vector<std::string> presets;
  for (const LossPreset& preset : LossPresets()) presets.emplace_back(preset.name);
  EXPECT_THAT(Allowed("loss.preset"), UnorderedElementsAreArray(presets));
}

// The trainer implements each choice that a job file may contain.
TEST(LossKeys, ChoicesAreKnownToTheTrainer) {
  for (const std::string& path : std::vector<std::string>{
           "loss.advantage", "loss.surrogate", "loss.ratio", "loss.anchor", "loss.correction.kind",
           "loss.kl.kind", "loss.aggregate", "loss.credit", "loss.not_asked"}) {
    const std::vector<std::string> allowed = Allowed(path);
    EXPECT_FALSE(allowed.empty()) << path;
    std::vector<std::string> names = allowed;
    names.emplace_back("no such choice");
    for (const std::string& name : names) {
      job::v1::Loss keys;
      google::protobuf::Message* block = &keys;
      if (const std::vector<std::string> parts = SplitList(path, '.'); parts.size() == 3) {
        block = keys.GetReflection()->MutableMessage(
            &keys, keys.GetDescriptor()->FindFieldByName(parts[1]));
      }
      block->GetReflection()->SetString(block, FindJobKey(path).key->field, name);
      const auto loss = ResolveLoss(keys, {.group_size = 8, .groups_per_step = 8});
      const auto* errors = std::get_if<std::vector<LossError>>(&loss);
      const bool is_unknown =
          errors != nullptr && std::any_of(errors->begin(), errors->end(), [&](const auto& error) {
            return error.field == path && error.message.find("is not one of") != std::string::npos;
          });
      EXPECT_EQ(is_unknown, name == "no such choice") << path << " " << name;
    }
  }
}

}  // namespace
}  // namespace freshet
